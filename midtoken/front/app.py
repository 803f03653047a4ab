"""The web application: requests of editors to completions of the server, whose text is cleared as an editor's is.

A module for each protocol reads the fields of its requests and writes its answers. What is between them is here.
"""

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
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
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason
from inference.protocol.completion_arrays import Description
from inference.serving.ports import LOG_TIME, MAX_BODY_BYTES, serve_http
from lsp_server.backend import CompletionBackend
from lsp_server.errors import NotSentError, to_midtoken_error
from lsp_server.privacy.guard import Cleared, Guard
from midtoken.endpoint import Endpoint
from midtoken.front import llama_server, ollama, openai
from midtoken.front.form import Form, Texts, to_json
from midtoken.front.indented import send_blanks, write_tabs
from midtoken.front.likely import show_likely
from midtoken.front.parsed_request import Fields, ParsedRequest, cut_near

_log = logging.getLogger(__name__)

_JSON = "application/json"
_TENANT = web.RequestKey("tenant", str)  # that of the key; empty if there are none
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    499: "superseded_error",
    503: "unavailable_error",
}
_Read = Callable[[Fields], ParsedRequest]
COMPLETIONS: Mapping[str, tuple[_Read, type[Form]]] = {
    "/v1/completions": (openai.read_completion, openai.CompletionForm),
    "/infill": (llama_server.read_infill, llama_server.InfillForm),
    "/completion": (llama_server.read_completion, llama_server.InfillForm),
    "/completions": (llama_server.read_completion, llama_server.InfillForm),
    "/api/generate": (ollama.read_generate, ollama.GenerateForm),
}


class Backend(CompletionBackend, Protocol):
    """Answers completions, and says whether its model lives: `midtoken.connection.Connection`."""

    async def read_description(self) -> Description:
        """Returns, as the last, why no request would be answered now. Raises ServerError."""


class _SupersededError(MidtokenError):
    """A newer request of the same client for what it edits has come."""


_STATUSES = (
    (InvalidRequestError, 400),
    (_SupersededError, 499),  # not 409, after which the openai package asks again
    (OverloadedError, 503),
    (ServerUnreachableError, 503),
    (InferenceServerUnreachableError, 503),
)


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """What a front serves, and how."""

    model: str  # its name for editors
    is_remote: bool = False  # whether text may go to another machine
    confidence: float = 0.0  # of a request that has none
    tokenizer: Path = Path()  # the model's `tokenizer.json`


@asynccontextmanager
async def open_front(endpoint: Endpoint, backend: Backend, options: FrontOptions) -> AsyncIterator[None]:
    """Answers the endpoint's requests inside the block."""
    front = _Front(endpoint, backend, options)
    async with serve_http(front.build(), endpoint.listener, endpoint.tls):
        yield


class _Front:
    def __init__(self, endpoint: Endpoint, backend: Backend, options: FrontOptions) -> None:
        self._endpoint, self._backend, self._model = endpoint, backend, options.model
        self._defaults = {"confidence": options.confidence}
        self._guard = Guard(is_remote=options.is_remote)
        self._tokens = llama_server.TokenIds(options.tokenizer)
        self._reading = asyncio.Lock()
        self._served = ""  # what a client is told that asks for something else

    def build(self) -> web.Application:
        """Returns the application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self.guard])
        gets: Mapping[str, Callable[[Description], object]] = {
            "/health": lambda _: {"status": "ok"},
            "/props": lambda told: llama_server.write_props(self._model, told.context_tokens or 0),
            "/slots": lambda told: llama_server.list_slots(told.context_tokens or 0),
        }
        posts: Mapping[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            **{path: partial(self.complete, *each) for path, each in COMPLETIONS.items()},
            "/api/show": partial(self.describe, lambda told: ollama.show_model(told.context_tokens or 0)),
            "/tokenize": partial(self.convert, self._tokens.tokenize),
            "/detokenize": partial(self.convert, self._tokens.detokenize),
        }
        models = openai.list_models(self._model)
        fixed = {
            "/": ollama.RUNNING,
            "/v1/models": models,
            "/models": models,
            "/v1/models/{name:.+}": models["data"][0],  # another name is ignored here, too
            "/api/tags": ollama.list_models(self._model),
            "/api/ps": ollama.list_models(self._model),
            "/api/version": ollama.tell_version(),
        }
        for path, write in gets.items():
            app.router.add_get(path, partial(self.describe, write))
        for path, answer in fixed.items():
            app.router.add_get(path, partial(_tell, answer))
        for path, handler in posts.items():
            app.router.add_post(path, handler)
        self._served = f"GET {', '.join([*gets, *fixed])}; POST {', '.join(posts)}"
        return app

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses who may not enter, and turns errors into answers."""
        if refusal := self._endpoint.find_refusal(request.headers):
            return _refuse(request, *refusal)
        request[_TENANT] = self._endpoint.find_tenant(request.headers) or ""
        if request.method == "POST" and request.content_type != _JSON:
            return _refuse(request, 415, f"Send JSON, with the header Content-Type: {_JSON}.")
        if "Content-Encoding" in request.headers:
            return _refuse(request, 415, "Send the body as it is, without Content-Encoding.")
        try:
            return await handler(request)
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
            return _refuse(request, error.status, f"{error.reason}. Served here: {self._served}")
        except web.HTTPException as error:  # a body that is too large or too slow
            return _refuse(request, error.status, error.reason)
        except Exception as error:
            return _refuse(request, *_find_answer(error))

    async def describe(self, write: Callable[[Description], object], _request: web.Request) -> web.Response:
        """Answers once the model does. Raises InferenceServerUnreachableError while its engine does not."""
        description = await self._backend.read_description()
        if description.problem:
            raise InferenceServerUnreachableError(description.problem)
        return web.json_response(write(description))

    async def convert(self, convert: Callable[[Fields], object], request: web.Request) -> web.Response:
        """Answers with what is computed here of the fields."""
        return web.json_response(await asyncio.to_thread(convert, self._parse(await request.read())))

    async def complete(self, read: _Read, form_of: type[Form], request: web.Request) -> web.StreamResponse:
        """Answers a request for a completion, which ends with its connection."""
        try:
            return await self._complete(read, form_of, request)
        except InvalidRequestError as error:
            raise InvalidRequestError(_name_as_sent(form_of, error)) from None

    async def _complete(self, read: _Read, form_of: type[Form], request: web.Request) -> web.StreamResponse:
        body, session = await request.read(), _read_name(request, "X-Session-ID")
        client = f"{request.remote} {_read_name(request, 'User-Agent')}"
        async with self._reading:  # one after the other, in a thread: a long body takes a second
            own = partial(_add_sender, request)
            parsed, cleared = await asyncio.to_thread(self._read, read, body, client, session, own)
        form, texts = form_of(parsed, self._model), Texts()
        if parsed.reason:
            _note(request, parsed.reason)
        chunks = _end_in_time(self._generate_all(parsed, cleared), parsed.max_predict_ms)
        async with aclosing(chunks):
            if parsed.streams:
                return await _stream(request, chunks, form, texts)
            try:
                async for chunk in chunks:
                    texts.add(chunk)
            except (_SupersededError, InvalidRequestError) as error:
                if not form.hides_refusals:
                    raise
                reason = _name_as_sent(form_of, error)
                if isinstance(error, InvalidRequestError):  # by the engine, for example for its text
                    _note(request, reason)
                parsed = replace(parsed, reason=reason)
                form, texts = form_of(parsed, self._model), Texts()
                async for chunk in self._generate_all(parsed, []):
                    texts.add(chunk)
        return web.json_response(form.explain(form.write_whole(texts)), dumps=to_json)

    def _parse(self, body: bytes) -> Fields:
        try:
            return Fields(json.loads(body), self._defaults)
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"the body is not UTF-8 at byte {error.start}") from None
        except (ValueError, RecursionError):
            raise InvalidRequestError("the body is no JSON") from None

    def _read(
        self,
        read: _Read,
        body: bytes,
        client: str,
        session: str,
        own: Callable[[CompletionRequest], CompletionRequest],
    ) -> tuple[ParsedRequest, list[Cleared[CompletionRequest]]]:
        """What a body asks for, and its requests with what may be sent. Raises InvalidRequestError."""
        parsed = read(self._parse(body))
        edited = session or parsed.edited
        document = f"{client} {edited}" if edited else ""
        near = tuple([own(replace(cut_near(each), document=document)) for each in parsed.completions])
        was_cut = any(len(cut.prefix) < len(each.prefix) for cut, each in zip(near, parsed.completions, strict=True))
        parsed = replace(parsed, completions=near, was_cut=was_cut)
        try:
            return parsed, [self._guard.clear(send_blanks(each), ()) for each in near]
        except NotSentError as error:  # of which an editor need not be told with a box at each key
            return replace(parsed, reason=str(error)), []

    async def _generate_all(
        self, parsed: ParsedRequest, cleared: list[Cleared[CompletionRequest]]
    ) -> AsyncGenerator[CompletionChunk, None]:
        """Yields the chunks for one prompt after the other. The texts of all prompts are numbered.

        If there is a reason, they are empty.
        """
        if parsed.reason:
            for number in range(len(parsed.completions) * parsed.first.num_candidates):
                yield CompletionChunk("", number, finish_reason=FinishReason.END, stats=CompletionStats())
            return
        for number, (each, request) in enumerate(zip(cleared, parsed.completions, strict=True)):
            chunks = self._generate(each, request if parsed.may_be_one else None)
            async with aclosing(write_tabs(show_likely(chunks, request.min_probability), request)) as shown:
                async for chunk in shown:
                    yield replace(chunk, candidate=chunk.candidate + number * request.num_candidates)

    async def _generate(
        self, cleared: Cleared[CompletionRequest], or_one_of: CompletionRequest | None
    ) -> AsyncGenerator[CompletionChunk, None]:
        """Yields the chunks. `or_one_of`: an engine that cannot generate several texts is asked for one of this."""
        try:
            async with aclosing(self._backend.stream(cleared)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except InvalidRequestError:
            if or_one_of is None:
                raise
            one = await asyncio.to_thread(self._guard.clear, replace(send_blanks(or_one_of), num_candidates=1), ())
            async with aclosing(self._generate(one, None)) as chunks:
                async for chunk in chunks:
                    yield chunk


async def _tell(answer: object, _request: web.Request) -> web.Response:
    return web.Response(text=answer) if isinstance(answer, str) else web.json_response(answer)


def _add_sender(request: web.Request, completion: CompletionRequest) -> CompletionRequest:
    """Returns the completion with the user whose key the request has."""
    return replace(completion, tenant=request[_TENANT] or completion.tenant)


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
    request: web.Request, chunks: AsyncGenerator[CompletionChunk, None], form: Form, texts: Texts
) -> web.StreamResponse:
    """Sends the chunks as events. What fails before the first has a status, what fails later is an event."""
    headers = {"Content-Type": form.framing.content_type, "Cache-Control": "no-store"}
    response = web.StreamResponse(headers=headers)
    try:
        async for chunk in chunks:
            texts.add(chunk)
            if not response.prepared:
                await response.prepare(request)
            await _send(response, form.framing.write(form.explain(form.write_event(chunk, texts))))
        for event in form.write_end(texts):
            await _send(response, form.framing.write(form.explain(event)))
    except Exception as error:
        if not response.prepared:
            raise
        answer = _find_answer(error)
        _note_refusal(request, answer[0])
        await _send(response, form.framing.write(_describe(request, *answer)))
    return response


async def _send(response: web.StreamResponse, event: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # the editor has gone, and this is about to be cancelled
        await response.write(event)


def _find_answer(error: Exception) -> tuple[int, str]:
    """The status of an error, and what is told of it."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    return status, str(to_midtoken_error(error))


def _name_as_sent(form: type[Form], error: MidtokenError) -> str:
    """The sentence of an error, which begins with the field that is wrong, as the client calls that."""
    name, blank, what = str(error).partition(" ")
    return form.names.get(name, name) + blank + what


def _find_type(status: int) -> str:
    return _TYPES.get(status, "server_error" if status == 500 else "invalid_request_error")


def _describe(request: web.Request, status: int, reason: str) -> dict[str, Any]:
    if request.path.startswith("/api/"):  # as Ollama's clients read it
        return {"error": reason}
    return {"error": {"message": reason, "type": _find_type(status), "param": None, "code": status}}


def _note_refusal(request: web.Request, status: int) -> None:
    if status != 499:  # with each key
        _note(request, f"status {status}, {_find_type(status)}")


def _note(request: web.Request, what: str) -> None:
    """Logs it without anything that the client has written, which may be text."""
    path = request.path if request.match_info.http_exception is None else "another address"
    _log.warning("%s %s: %s", time.strftime(LOG_TIME), path, what)


def _refuse(request: web.Request, status: int, reason: str) -> web.Response:
    _note_refusal(request, status)
    return web.json_response(_describe(request, status, reason), status=status, dumps=to_json)
