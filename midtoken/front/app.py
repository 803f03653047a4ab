"""The web application: requests of editors to completions of the server, whose text is cleared as an editor's is."""

import asyncio
import contextlib
import json
import logging
import math
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol  # JSON has no types

from aiohttp import web
from aiohttp.typedefs import Handler

from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    MidtokenError,
    OverloadedError,
    ServerUnreachableError,
)
from inference.likely_text import LikelyText, LikelyToken
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason
from inference.protocol.completion_arrays import Description
from inference.serving.ports import LOG_TIME, MAX_BODY_BYTES, serve_http
from lsp_server.backend import CompletionBackend
from lsp_server.errors import NotSentError, to_midtoken_error
from lsp_server.privacy.guard import Cleared, Guard
from midtoken.front.endpoint import Endpoint
from midtoken.front.likely import show_likely
from midtoken.front.parsed_request import Fields, ParsedRequest, cut_near, read_completion, read_infill

DONE = "[DONE]"
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Texts:
    """What has arrived of a completion: the text of each candidate, why it ended, and the statistics."""

    texts: defaultdict[int, LikelyText] = field(default_factory=lambda: defaultdict(LikelyText))
    reasons: dict[int, FinishReason] = field(default_factory=dict)
    stats: CompletionStats | None = None  # None: it was ended here

    def add(self, chunk: CompletionChunk) -> None:
        """Adds a chunk."""
        self.texts[chunk.candidate].add(chunk)
        if chunk.finish_reason is not None:
            self.reasons[chunk.candidate] = chunk.finish_reason
        self.stats = chunk.stats


_NAMES = {"num_candidates": "n", "tenant": "user", "document": "the session"}


class CompletionForm:
    """Writes one answer of `/v1/completions`."""

    names: Mapping[str, str] = {**_NAMES, "prefix": "prompt"}  # of fields of a `CompletionRequest`, for the client

    def __init__(self, parsed: ParsedRequest, model: str) -> None:
        """`model`: its name."""
        self._parsed = parsed
        self._head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
        self._head["model"] = model

    def write_whole(self, texts: Texts) -> object:
        """Returns the answer that is not streamed."""
        choices = [self._write_choice(each, texts, texts.reasons.get(each)) for each in sorted(texts.texts)]
        return {**self._head, "choices": choices, "usage": _write_usage(texts.stats)}

    def write_event(self, chunk: CompletionChunk, texts: Texts) -> object:
        """Returns the event of a stream for a chunk, which `texts` has too."""
        start = len(texts.texts[chunk.candidate].text) - len(chunk.text)
        return {**self._head, "choices": [self._write_choice(chunk.candidate, texts, chunk.finish_reason, start)]}

    def write_end(self, texts: Texts) -> Iterator[object]:
        """Yields the last events of a stream."""
        if self._parsed.wants_usage:
            yield {**self._head, "choices": [], "usage": _write_usage(texts.stats)}
        yield DONE

    def _write_choice(self, candidate: int, texts: Texts, reason: FinishReason | None, start: int = 0) -> object:
        ended = None if reason is None else "length" if reason is FinishReason.LENGTH else "stop"
        likely, num_top = texts.texts[candidate], self._parsed.num_top_tokens
        logprobs = None if num_top is None else _write_logprobs([*likely.read_tokens(start)], num_top)
        return {"index": candidate, "text": likely.text[start:], "logprobs": logprobs, "finish_reason": ended}


class InfillForm:
    """Writes one answer of `/infill`."""

    names: Mapping[str, str] = {
        **_NAMES,
        **{"prefix": "the text before the cursor", "suffix": "input_suffix", "max_tokens": "n_predict"},
        "num_candidates": "n or n_cmpl",
        "related": "input_extra",
    }

    def __init__(self, parsed: ParsedRequest, model: str) -> None:
        """`model`: its name."""
        self._parsed, self._model = parsed, model

    def write_whole(self, texts: Texts) -> object:
        """Returns the answer that is not streamed."""
        results = [self._write_result(each, texts.texts[each].text, texts) for each in sorted(texts.texts)]
        return results if self._parsed.completion.num_candidates > 1 else results[0]

    def write_event(self, chunk: CompletionChunk, _texts: Texts) -> object:
        """Returns the event of a stream for a chunk."""
        return {"index": chunk.candidate, "content": chunk.text, "tokens": [], "stop": False}

    def write_end(self, texts: Texts) -> Iterator[object]:
        """Yields the last events of a stream."""
        return (self._write_result(each, "", texts) for each in sorted(texts.texts))

    def _write_result(self, candidate: int, content: str, texts: Texts) -> dict[str, Any]:
        request, reason = self._parsed.completion, texts.reasons.get(candidate)
        names = {FinishReason.END: "eos", FinishReason.STOP: "word"}
        result: dict[str, Any] = {
            "index": candidate,
            "content": content,
            "tokens": [],
            "stop": True,
            "model": self._model,
            "stop_type": "limit" if reason is None else names.get(reason, "limit"),
            "has_new_line": "\n" in texts.texts[candidate].text,
            "truncated": False,
            "generation_settings": {"n_predict": request.max_tokens, "temperature": request.temperature},
        }
        if texts.stats is not None:
            result |= _write_costs(texts.stats)
        if not self._parsed.fields:
            return result
        result |= {f"timings/{name}": value for name, value in result.get("timings", {}).items()}
        return {name: value for name, value in result.items() if name in self._parsed.fields}


def to_json(value: object) -> str:
    """Returns JSON without blanks: llama.vim shows only an answer that contains `"content":"`."""
    return json.dumps(value, separators=(",", ":"))


def _write_logprobs(tokens: list[LikelyToken], num_top: int) -> dict[str, Any]:
    return {
        "tokens": [each.text for each in tokens],
        "token_logprobs": [each.log_prob for each in tokens],
        "text_offset": [each.start for each in tokens],
        "top_logprobs": [{each.text: each.log_prob} for each in tokens] if num_top else None,
    }


def _write_usage(stats: CompletionStats | None) -> dict[str, Any]:
    stats = stats or CompletionStats()
    return {
        "prompt_tokens": stats.num_context_tokens,
        "completion_tokens": stats.num_tokens,
        "total_tokens": stats.num_context_tokens + stats.num_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.num_context_tokens - stats.num_read_tokens},
    }


def _write_costs(stats: CompletionStats) -> dict[str, Any]:
    """The times are those until the first text and until the end: often a text comes at once."""
    prompt = _write_speed("prompt", stats.num_read_tokens, stats.first_chunk_ms - stats.queue_ms)
    predicted = _write_speed("predicted", stats.num_tokens, stats.total_ms - stats.queue_ms)
    return {
        "tokens_evaluated": stats.num_context_tokens,
        "tokens_predicted": stats.num_tokens,
        "tokens_cached": stats.num_context_tokens + stats.num_tokens,
        "timings": {"cache_n": stats.num_context_tokens - stats.num_read_tokens, **prompt, **predicted},
    }


def _write_speed(name: str, num_tokens: int, took_ms: float) -> dict[str, float]:
    return {
        f"{name}_n": num_tokens,
        f"{name}_ms": took_ms,
        f"{name}_per_token_ms": took_ms / max(num_tokens, 1),
        f"{name}_per_second": 1e3 * num_tokens / took_ms if took_ms > 0 else 0.0,
    }


_JSON = "application/json"
_TYPES = {401: "authentication_error", 403: "permission_error", 499: "superseded_error", 503: "unavailable_error"}
_Read = Callable[[Fields, str, str], ParsedRequest]
_Form = CompletionForm | InfillForm


class Backend(CompletionBackend, Protocol):
    """Answers completions, and says whether its model lives: `midtoken.connection.Connection`."""

    async def read_description(self) -> Description:
        """Returns, as the last, why no request would be answered now. Raises ServerError."""


class _SupersededError(MidtokenError):
    """A newer request of the same client for what it edits has come."""


_STATUSES = (
    (InvalidRequestError, 400),
    (NotSentError, 400),
    (_SupersededError, 499),  # not 409, after which the openai package asks again
    (OverloadedError, 503),
    (ServerUnreachableError, 503),
    (InferenceServerUnreachableError, 503),
)


@asynccontextmanager
async def open_front(
    endpoint: Endpoint, backend: Backend, model: str, is_remote: bool = False, confidence: float = 0.0
) -> AsyncIterator[None]:
    """Answers the endpoint's requests inside the block.

    `model`: the name of the model for editors. `is_remote`: text may go to another machine. `confidence`: of a
    request that has none.
    """
    front = _Front(endpoint, backend, model, is_remote, confidence)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[front.guard])
    app.router.add_get("/health", front.tell_health)
    app.router.add_get("/v1/models", front.list_models)
    app.router.add_post("/v1/completions", partial(front.complete, read_completion, CompletionForm))
    app.router.add_post("/infill", partial(front.complete, read_infill, InfillForm))
    async with serve_http(app, endpoint.listener, endpoint.tls):
        yield


class _Front:
    def __init__(self, endpoint: Endpoint, backend: Backend, model: str, is_remote: bool, confidence: float) -> None:
        self._endpoint, self._backend, self._model = endpoint, backend, model
        self._defaults = {"confidence": confidence}
        self._guard = Guard(is_remote=is_remote)
        self._reading = asyncio.Lock()

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses who may not enter, and turns errors into answers."""
        if refusal := self._endpoint.find_refusal(request.headers):
            return _refuse(request, *refusal)
        if request.method == "POST" and request.content_type != _JSON:
            return _refuse(request, 415, f"Send JSON, with the header Content-Type: {_JSON}.")
        if "Content-Encoding" in request.headers:
            return _refuse(request, 415, "Send the body as it is, without Content-Encoding.")
        try:
            return await handler(request)
        except web.HTTPException as error:  # no such address, or a body that is too large or too slow
            return _refuse(request, error.status, error.reason)
        except Exception as error:
            return _refuse(request, *_find_answer(error))

    async def tell_health(self, _request: web.Request) -> web.Response:
        """Answers once the model does. Raises InferenceServerUnreachableError while its engine does not."""
        problem = (await self._backend.read_description()).problem
        if problem:
            raise InferenceServerUnreachableError(problem)
        return web.json_response({"status": "ok"})

    async def list_models(self, _request: web.Request) -> web.Response:
        """Names the one model."""
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "midtoken"}
        return web.json_response({"object": "list", "data": [model]})

    async def complete(self, read: _Read, form_of: type[_Form], request: web.Request) -> web.StreamResponse:
        """Answers a request for a completion, which ends with its connection."""
        try:
            return await self._complete(read, form_of, request)
        except InvalidRequestError as error:  # which begins with the name of the field that is wrong
            name, blank, what = str(error).partition(" ")
            raise InvalidRequestError(form_of.names.get(name, name) + blank + what) from None

    async def _complete(self, read: _Read, form_of: type[_Form], request: web.Request) -> web.StreamResponse:
        body, session = await request.read(), _read_name(request, "X-Session-ID")
        client = f"{request.remote} {_read_name(request, 'User-Agent')}"
        async with self._reading:  # one after the other, in a thread: a long body takes a second
            parsed, cleared = await asyncio.to_thread(self._read, read, body, client, session)
        form, texts = form_of(parsed, self._model), Texts()
        chunks = self._generate(cleared, parsed.completion if form_of is InfillForm else None)
        chunks = _end_in_time(show_likely(chunks, parsed.completion.min_probability), parsed.max_predict_ms)
        async with aclosing(chunks):
            if parsed.streams:
                return await _stream(request, chunks, form, texts)
            async for chunk in chunks:
                texts.add(chunk)
        return web.json_response(form.write_whole(texts), dumps=to_json)

    def _read(
        self, read: _Read, body: bytes, client: str, session: str
    ) -> tuple[ParsedRequest, Cleared[CompletionRequest]]:
        """What a body asks for, and the request with what may be sent. Raises InvalidRequestError or InSecretError."""
        try:
            fields = Fields(json.loads(body), self._defaults)
        except (ValueError, RecursionError):
            raise InvalidRequestError("the body is no JSON") from None
        parsed = read(fields, client, session)
        completion = parsed.completion
        near = cut_near(completion)
        return replace(parsed, completion=near), self._guard.clear(near, ())

    async def _generate(
        self, cleared: Cleared[CompletionRequest], or_one_of: CompletionRequest | None
    ) -> AsyncGenerator[CompletionChunk, None]:
        """Yields the chunks. `or_one_of`: an engine that cannot generate several texts is asked for one of this."""
        try:
            async with aclosing(self._backend.stream(cleared)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except InvalidRequestError:
            if or_one_of is None or or_one_of.num_candidates == 1:
                raise
            one = await asyncio.to_thread(self._guard.clear, replace(or_one_of, num_candidates=1), ())
            async with aclosing(self._generate(one, None)) as chunks:
                async for chunk in chunks:
                    yield chunk


def _read_name(request: web.Request, header: str) -> str:
    """A name that a client gives itself, in any bytes."""
    return request.headers.get(header, "").encode(errors="surrogateescape").decode("latin-1")


async def _end_in_time(
    chunks: AsyncGenerator[CompletionChunk, None], limit_ms: int
) -> AsyncGenerator[CompletionChunk, None]:
    """Yields the chunks. Ends after `limit_ms` from the first text on, if there is a line end by then.

    Raises _SupersededError.
    """
    now_s, began_s, has_line = asyncio.get_running_loop().time, math.inf, False
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk.finish_reason is FinishReason.SUPERSEDED:
                raise _SupersededError("a newer request of the same session or slot has replaced this one")
            yield chunk
            began_s, has_line = min(began_s, now_s()), has_line or "\n" in chunk.text
            if limit_ms > 0 and has_line and 1e3 * (now_s() - began_s) >= limit_ms:
                return


async def _stream(
    request: web.Request, chunks: AsyncGenerator[CompletionChunk, None], form: _Form, texts: Texts
) -> web.StreamResponse:
    """Sends the chunks as events. What fails before the first has a status, what fails later is an event."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    try:
        async for chunk in chunks:
            texts.add(chunk)
            if not response.prepared:
                await response.prepare(request)
            await _send(response, form.write_event(chunk, texts))
        for event in form.write_end(texts):
            await _send(response, event)
    except Exception as error:
        if not response.prepared:
            raise
        answer = _find_answer(error)
        _note_refusal(request, answer[0])
        await _send(response, _describe(*answer))
    return response


async def _send(response: web.StreamResponse, event: object) -> None:
    with contextlib.suppress(ConnectionError):  # the editor has gone, and this is about to be cancelled
        await response.write(f"data: {event if event == DONE else to_json(event)}\n\n".encode())


def _find_answer(error: Exception) -> tuple[int, str]:
    """The status of an error, and what is told of it."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    return status, str(to_midtoken_error(error))


def _find_type(status: int) -> str:
    return _TYPES.get(status, "server_error" if status == 500 else "invalid_request_error")


def _describe(status: int, reason: str) -> dict[str, Any]:
    return {"error": {"message": reason, "type": _find_type(status), "param": None, "code": status}}


def _note_refusal(request: web.Request, status: int) -> None:
    """Logs it without anything that the client has written, which may be text."""
    if status != 499:  # with each key
        path = request.path if request.match_info.http_exception is None else "another address"
        _log.warning("%s %s: status %d, %s", time.strftime(LOG_TIME), path, status, _find_type(status))


def _refuse(request: web.Request, status: int, reason: str) -> web.Response:
    _note_refusal(request, status)
    return web.json_response(_describe(status, reason), status=status, dumps=to_json)
