"""The HTTP application in front of a host: requests to completions, whose text is cleared as an editor's is.

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
from dataclasses import replace
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any  # JSON has no types

from aiohttp import web
from aiohttp.typedefs import Handler

from inference.errors import InferenceServerUnreachableError, InvalidRequestError, MidtokenError, ServerError
from inference.platforms import find_stranger
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, Description, FinishReason
from lsp_server.errors import NotSentError, to_midtoken_error
from lsp_server.guard import Cleared, Guard
from midtoken.connection import Connection
from midtoken.http import generate, protocols
from midtoken.http.chunks import send_blanks, shape_chunks
from midtoken.http.parsed_request import Fields, ParsedRequest, cut_near
from midtoken.http.protocols import Form, to_json

_log = logging.getLogger(__name__)

_MAX_BODY_BYTES = 4 * 2**20  # twice the longest text
_END_S = 0.1  # for open requests, which are cancelled then; aiohttp would take 0 for no limit
_JSON, _METRICS_TYPE = "application/json", "text/plain; version=0.0.4"
_LOG_TIME = "%Y-%m-%d %H:%M:%S"
_TENANT = "X-Tenant"  # a gateway's header: whose a request is
_Read = Callable[[Fields], ParsedRequest]
COMPLETIONS: Mapping[str, tuple[_Read, type[Form]]] = {
    "/v1/completions": (protocols.read_openai, protocols.OpenAiForm),
    "/infill": (protocols.read_infill, protocols.LlamaServerForm),
    "/completion": (protocols.read_completion, protocols.LlamaServerForm),
    "/completions": (protocols.read_completion, protocols.LlamaServerForm),
    "/api/generate": (protocols.read_ollama, protocols.OllamaForm),
}
_TYPES = {403: "permission_error", 499: "superseded_error", 500: "server_error", 503: "unavailable_error"}


class SupersededError(MidtokenError):
    """A newer request of the same client for what it edits has come."""

    status = 499  # not 409, after which the openai package asks again


class App:
    """Answers HTTP requests on a port of loopback."""

    def __init__(
        self,
        backend: Connection,
        model: str,
        model_dir: Path | None = None,
        *,
        is_remote: bool = False,
        confidence: float = 0.0,
    ) -> None:
        """`model`: its name for clients. `model_dir`: with its tokenizer; None: only its server has it.

        `is_remote`: text may go to another machine. `confidence`: of a request that names none.
        """
        self.is_ending = False  # then it is not ready, and goes on for a while
        self._backend, self._model, self._confidence = backend, model, confidence
        self._guard = Guard(is_remote=is_remote)
        self._tokens = None if model_dir is None else protocols.TokenIds(model_dir)
        self._reading = asyncio.Lock()
        self._served = ""  # the addresses, for a client that asks for another one

    @asynccontextmanager
    async def serve(self, listener: socket) -> AsyncIterator[None]:
        """Answers requests inside the block. A request whose connection ends is cancelled."""
        runner = web.AppRunner(
            self._build(), access_log=None, handler_cancellation=True, shutdown_timeout=_END_S, auto_decompress=False
        )
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            yield
        finally:
            await runner.cleanup()

    def _build(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[self.guard])
        gets: Mapping[str, Callable[[Description], object]] = {
            "/health": lambda _: {"status": "ok"},
            "/props": lambda served: protocols.write_props(self._model, served.context_tokens or 0),
            "/slots": lambda served: protocols.list_slots(served.context_tokens or 0),
        }
        posts: Mapping[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            **dict.fromkeys(COMPLETIONS, self.complete),
            "/api/show": partial(self.describe, lambda served: protocols.show_ollama_model(served.context_tokens or 0)),
        }
        if self._tokens is not None:
            posts = {**posts, "/tokenize": partial(_convert, self._tokens.tokenize)}
        models, ollama_models = protocols.list_openai_models(self._model), protocols.list_ollama_models(self._model)
        fixed = {
            "/": protocols.OLLAMA_RUNS,
            "/v1/models": models,
            "/models": models,
            "/v1/models/{name:.+}": models["data"][0],  # another name is ignored here, too
            "/api/tags": ollama_models,
            "/api/ps": ollama_models,
            "/api/version": protocols.OLLAMA_VERSION,
        }
        app.add_routes(
            [
                *(web.get(path, partial(self.describe, write)) for path, write in gets.items()),
                *(web.get(path, partial(_answer, answer)) for path, answer in fixed.items()),
                *(web.post(path, handler) for path, handler in posts.items()),
                web.post(generate.PATH, self.generate),
                web.get("/ready", self.report_readiness),
                web.get("/metrics", self.report_metrics),
            ]
        )
        self._served = f"GET {', '.join([*gets, *fixed])}; POST {', '.join(posts)}"
        return app

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses web pages of other sites, and turns errors into answers."""
        if stranger := find_stranger(request.headers):
            return _refuse(request, 403, stranger)
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
            return _refuse(request, *_find_answer(request, error))

    async def describe(self, write: Callable[[Description], object], _request: web.Request) -> web.Response:
        """Answers once the model does. Raises InferenceServerUnreachableError while its engine does not."""
        description = await self._backend.read_description()
        if description.problem:
            raise InferenceServerUnreachableError(description.problem)
        return web.json_response(write(description))

    async def report_readiness(self, _request: web.Request) -> web.Response:
        """Answers a gateway: whether a completion would be answered now, else status 503 and why not."""
        problem = await self._find_problem()
        return web.Response(text=f"{problem or 'ready'}\n", status=503 if problem else 200)

    async def report_metrics(self, _request: web.Request) -> web.Response:
        """Answers with the engine's metrics; of a host that does not answer, only that it is not ready."""
        problem, metrics = await self._find_problem(), ""
        with contextlib.suppress(ServerError):
            metrics = await self._backend.read_metrics()
        about = "# HELP midtoken_ready Whether a completion would be answered\n# TYPE midtoken_ready gauge\n"
        text = f"{about}midtoken_ready {0 if problem else 1}\n{metrics}"
        return web.Response(text=text, headers={"Content-Type": _METRICS_TYPE})

    async def _find_problem(self) -> str:
        return "the server is ending" if self.is_ending else await self._backend.find_problem()

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Answers a request of Triton's generate extension: one response, or a stream of them."""
        model = request.match_info["model"]
        parsed = generate.read_request(model, _parse_json(await request.read()))
        try:
            cleared: Any = await asyncio.to_thread(self._guard.clear, parsed, ())
        except NotSentError as error:
            raise InvalidRequestError(str(error)) from None
        answers: AsyncGenerator[Any, None] = (
            self._backend.stream(cleared)
            if isinstance(parsed, CompletionRequest)
            else _yield_one(self._backend.ask(cleared))
        )
        async with aclosing(answers):
            texts = (generate.write_answer(model, each) async for each in answers)
            if request.match_info["call"] == "generate_stream":
                return await _stream(request, protocols.EVENTS, texts)
            whole = [each async for each in texts]
        if len(whole) > 1:
            raise InvalidRequestError(f"generate returns one response, not {len(whole)}; use generate_stream")
        return web.json_response(text=whole[0])

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answers a request for a completion, which ends with its connection."""
        body, (read, form_of) = await request.read(), COMPLETIONS[request.path]
        async with self._reading:  # one after the other, in a thread: a long body takes a second
            parsed, cleared = await asyncio.to_thread(self._read, read, body, request)
        form = form_of(parsed, self._model)
        if parsed.reason:
            _note(request, parsed.reason)
        chunks = _end_in_time(self._generate_all(parsed, cleared), parsed.max_predict_ms)
        async with aclosing(chunks):
            if parsed.streams:
                return await _stream(request, form.framing, form.stream(chunks))
            try:
                answer = await form.read(chunks)
            except (SupersededError, InvalidRequestError) as error:
                if not form.hides_refusals:
                    raise
                _, reason = _find_answer(request, error)
                if isinstance(error, InvalidRequestError):  # by the engine, for example for its text
                    _note(request, reason)
                parsed = replace(parsed, reason=reason)
                answer = await form_of(parsed, self._model).read(self._generate_all(parsed, []))
        return web.json_response(text=answer)

    def _read(
        self, read: _Read, body: bytes, request: web.Request
    ) -> tuple[ParsedRequest, list[Cleared[CompletionRequest]]]:
        """Returns what a body asks for, and its requests with what may be sent. Raises InvalidRequestError."""
        parsed = read(Fields(_parse_json(body), {"confidence": self._confidence}))
        edited = _read_name(request, "X-Session-ID") or parsed.edited
        document = f"{request.remote} {_read_name(request, 'User-Agent')} {edited}" if edited else ""
        near = [replace(cut_near(each), document=document) for each in parsed.completions]
        if tenant := request.headers.get(_TENANT):
            near = [replace(each, tenant=tenant) for each in near]
        was_cut = any(len(cut.prefix) < len(each.prefix) for cut, each in zip(near, parsed.completions, strict=True))
        parsed = replace(parsed, completions=tuple(near), was_cut=was_cut)
        try:
            return parsed, [self._guard.clear(send_blanks(each), ()) for each in near]
        except NotSentError as error:  # an editor shows no box for it at each key
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
            async with aclosing(shape_chunks(chunks, request)) as shaped:
                async for chunk in shaped:
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


async def _answer(answer: object, _request: web.Request) -> web.Response:
    return web.Response(text=answer) if isinstance(answer, str) else web.json_response(answer)


async def _convert(convert: Callable[[Fields], object], request: web.Request) -> web.Response:
    return web.json_response(await asyncio.to_thread(convert, Fields(_parse_json(await request.read()))))


async def _yield_one(answer: Awaitable[Any]) -> AsyncGenerator[Any, None]:
    yield await answer


def _parse_json(body: bytes) -> object:
    try:
        found: object = json.loads(body)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError):
        raise InvalidRequestError("the body is no JSON") from None
    return found


def _read_name(request: web.Request, header: str) -> str:
    """A name that a client gives itself, in any bytes."""
    return request.headers.get(header, "").encode(errors="surrogateescape").decode("latin-1")


async def _end_in_time(
    chunks: AsyncGenerator[CompletionChunk, None], limit_ms: int
) -> AsyncGenerator[CompletionChunk, None]:
    """Yields the chunks. Ends after `limit_ms` from the first text on, if there is a line end by then.

    Raises SupersededError.
    """
    now_s, began_s, has_line = asyncio.get_running_loop().time, math.inf, False
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk.finish_reason is FinishReason.SUPERSEDED:
                raise SupersededError("a newer request of the same session or slot has replaced this one")
            yield chunk
            began_s, has_line = min(began_s, now_s()), has_line or "\n" in chunk.text
            if limit_ms > 0 and has_line and 1e3 * (now_s() - began_s) >= limit_ms:
                return


async def _stream(
    request: web.Request, framing: tuple[str, str], events: AsyncGenerator[str, None]
) -> web.StreamResponse:
    """Sends the events. What fails before the first has a status, what fails later is an event."""
    content_type, frame = framing
    response = web.StreamResponse(headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    async def send(event: str) -> None:
        with contextlib.suppress(ConnectionError):  # the editor has gone, and this is about to be cancelled
            await response.write(frame.format(event).encode())

    try:
        async for event in events:
            if not response.prepared:
                await response.prepare(request)
            await send(event)
    except Exception as error:
        if not response.prepared:
            raise
        status, reason = _find_answer(request, error)
        _note_refusal(request, status)
        await send(to_json(_describe(request, status, reason)))
    return response


def _find_answer(request: web.Request, error: Exception) -> tuple[int, str]:
    """Returns the status of an error and its text, in the words of the client's protocol.

    The text begins with the kind of error for Triton's clients, and with their own name for a field that is wrong.
    """
    public = to_midtoken_error(error)
    if request.path in COMPLETIONS and isinstance(public, InvalidRequestError):
        name, blank, what = str(public).partition(" ")
        return public.status, COMPLETIONS[request.path][1].names.get(name, name) + blank + what
    return public.status, public.stream_text if request.path.startswith("/v2/") else str(public)


def _refuse(request: web.Request, status: int, reason: str) -> web.Response:
    """Returns the answer to a request that is refused, which is logged."""
    _note_refusal(request, status)
    return web.json_response(_describe(request, status, reason), status=status, dumps=to_json)


def _describe(request: web.Request, status: int, reason: str) -> dict[str, Any]:
    """Returns a refusal in the form of the client's protocol."""
    if request.path.startswith(("/api/", "/v2/")):  # as clients of Ollama and Triton read it
        return {"error": reason}
    return {"error": {"message": reason, "type": _find_type(status), "param": None, "code": status}}


def _find_type(status: int) -> str:
    return _TYPES.get(status, "invalid_request_error")


def _note_refusal(request: web.Request, status: int) -> None:
    if status != SupersededError.status:  # with each key
        _note(request, f"status {status}, {_find_type(status)}")


def _note(request: web.Request, what: str) -> None:
    """Logs it without anything that the client has written, which may be text."""
    path = request.path if request.match_info.http_exception is None else "another address"
    _log.warning("%s %s: %s", time.strftime(_LOG_TIME), path, what)
