"""The HTTP application in front of a host: requests to completions, whose text is cleared as an editor's is.

A module for each protocol reads the fields of its requests and writes its answers. What is between them is here.
"""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any, Protocol  # JSON has no types

from aiohttp import web
from aiohttp.typedefs import Handler

from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    ServerError,
)
from inference.platforms import find_stranger
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, Description, FinishReason
from lsp_server.backend import CompletionBackend
from lsp_server.errors import NotSentError
from lsp_server.privacy.guard import Cleared, Guard
from midtoken.http import generate, llama_server, ollama, openai
from midtoken.http.form import Form, Texts, to_json
from midtoken.http.indented import send_blanks, write_tabs
from midtoken.http.likely import show_likely
from midtoken.http.parsed_request import Fields, ParsedRequest, cut_near
from midtoken.http.refusals import (
    SupersededError,
    describe_refusal,
    find_answer,
    name_as_sent,
    note,
    note_refusal,
    refuse,
)

_MAX_BODY_BYTES = 4 * 2**20  # twice the longest text
_END_S = 0.1  # for open requests, which are cancelled then; aiohttp would take 0 for no limit
_JSON, _METRICS_TYPE = "application/json", "text/plain; version=0.0.4"
_TENANT = "X-Tenant"  # a gateway's header: whose a request is
_Read = Callable[[Fields], ParsedRequest]
COMPLETIONS: Mapping[str, tuple[_Read, type[Form]]] = {
    "/v1/completions": (openai.read_completion, openai.CompletionForm),
    "/infill": (llama_server.read_infill, llama_server.InfillForm),
    "/completion": (llama_server.read_completion, llama_server.InfillForm),
    "/completions": (llama_server.read_completion, llama_server.InfillForm),
    "/api/generate": (ollama.read_generate, ollama.GenerateForm),
}


@dataclass(frozen=True, slots=True)
class AppOptions:
    """What the application serves, and how."""

    model: str  # its name for clients
    is_remote: bool = False  # whether text may go to another machine
    confidence: float = 0.0  # of a request that has none
    tokenizer: Path = Path()  # the model's `tokenizer.json`


class Backend(CompletionBackend, Protocol):
    """Answers requests: `midtoken.connection.Connection`."""

    async def ask(self, request: Cleared[CharacterRequest]) -> CharacterAnswer: ...

    async def read_description(self) -> Description: ...

    async def read_metrics(self) -> str: ...

    async def find_problem(self) -> str: ...


class App:
    """Answers HTTP requests on a port of loopback."""

    def __init__(self, backend: Backend, options: AppOptions) -> None:
        self.is_ending = False  # then it is not ready, and goes on for a while
        self._backend, self._model = backend, options.model
        self._defaults = {"confidence": options.confidence}
        self._guard = Guard(is_remote=options.is_remote)
        self._tokens = llama_server.TokenIds(options.tokenizer)
        self._reading = asyncio.Lock()
        self._served = ""  # what a client is told that asks for something else

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
        app.router.add_post(generate.PATH, self.generate)
        app.router.add_get("/ready", self.tell_readiness)
        app.router.add_get("/metrics", self.tell_metrics)
        self._served = f"GET {', '.join([*gets, *fixed])}; POST {', '.join(posts)}"
        return app

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses web pages of other sites, and turns errors into answers."""
        if stranger := find_stranger(request.headers):
            return refuse(request, 403, stranger)
        if request.method == "POST" and request.content_type != _JSON:
            return refuse(request, 415, f"Send JSON, with the header Content-Type: {_JSON}.")
        if "Content-Encoding" in request.headers:
            return refuse(request, 415, "Send the body as it is, without Content-Encoding.")
        try:
            return await handler(request)
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
            return refuse(request, error.status, f"{error.reason}. Served here: {self._served}")
        except web.HTTPException as error:  # a body that is too large or too slow
            return refuse(request, error.status, error.reason)
        except Exception as error:
            return refuse(request, *find_answer(request, error))

    async def describe(self, write: Callable[[Description], object], _request: web.Request) -> web.Response:
        """Answers once the model does. Raises InferenceServerUnreachableError while its engine does not."""
        description = await self._backend.read_description()
        if description.problem:
            raise InferenceServerUnreachableError(description.problem)
        return web.json_response(write(description))

    async def convert(self, convert: Callable[[Fields], object], request: web.Request) -> web.Response:
        """Answers with what is computed here of the fields."""
        return web.json_response(await asyncio.to_thread(convert, self._parse(await request.read())))

    async def tell_readiness(self, _request: web.Request) -> web.Response:
        """Answers a gateway: whether a completion would be answered now, else status 503 and why not."""
        problem = await self._find_problem()
        return web.Response(text=f"{problem or 'ready'}\n", status=503 if problem else 200)

    async def tell_metrics(self, _request: web.Request) -> web.Response:
        """Answers with the engine's metrics; of a host that does not answer, only that it is not ready."""
        problem, told = await self._find_problem(), ""
        with contextlib.suppress(ServerError):
            told = await self._backend.read_metrics()
        about = "# HELP midtoken_ready Whether a completion would be answered\n# TYPE midtoken_ready gauge\n"
        text = f"{about}midtoken_ready {0 if problem else 1}\n{told}"
        return web.Response(text=text, headers={"Content-Type": _METRICS_TYPE})

    async def _find_problem(self) -> str:
        return "the server is ending" if self.is_ending else await self._backend.find_problem()

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Answers a request of Triton's generate extension: one response, or a stream of them."""
        model, response = request.match_info["model"], None
        parsed = generate.read_request(model, await request.read())
        try:
            cleared: Any = await asyncio.to_thread(self._guard.clear, parsed, ())
        except NotSentError as error:
            raise InvalidRequestError(str(error)) from None
        if isinstance(parsed, CompletionRequest):
            answers = self._backend.stream(cleared)
        else:
            answers = _yield_one(self._backend.ask(cleared))
        async with aclosing(answers):
            if request.match_info["call"] == "generate":
                texts = [generate.write_answer(model, each) async for each in answers]
                if len(texts) > 1:
                    raise InvalidRequestError(f"generate returns one response, not {len(texts)}; use generate_stream")
                return web.json_response(text=texts[0])
            try:
                async for answer in answers:
                    if response is None:
                        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                        await response.prepare(request)
                    await response.write(f"data: {generate.write_answer(model, answer)}\n\n".encode())
            except Exception as error:
                if response is None:
                    raise
                await response.write(
                    f"data: {to_json(describe_refusal(request, *find_answer(request, error)))}\n\n".encode()
                )
        assert response is not None, "there is an answer, or an error"
        return response

    async def complete(self, read: _Read, form_of: type[Form], request: web.Request) -> web.StreamResponse:
        """Answers a request for a completion, which ends with its connection."""
        try:
            return await self._complete(read, form_of, request)
        except InvalidRequestError as error:
            raise InvalidRequestError(name_as_sent(form_of, error)) from None

    async def _complete(self, read: _Read, form_of: type[Form], request: web.Request) -> web.StreamResponse:
        body, session = await request.read(), _read_name(request, "X-Session-ID")
        client = f"{request.remote} {_read_name(request, 'User-Agent')}"
        async with self._reading:  # one after the other, in a thread: a long body takes a second
            own = partial(_add_sender, request)
            parsed, cleared = await asyncio.to_thread(self._read, read, body, client, session, own)
        form, texts = form_of(parsed, self._model), Texts()
        if parsed.reason:
            note(request, parsed.reason)
        chunks = _end_in_time(self._generate_all(parsed, cleared), parsed.max_predict_ms)
        async with aclosing(chunks):
            if parsed.streams:
                return await _stream(request, chunks, form, texts)
            try:
                async for chunk in chunks:
                    texts.add(chunk)
            except (SupersededError, InvalidRequestError) as error:
                if not form.hides_refusals:
                    raise
                reason = name_as_sent(form_of, error)
                if isinstance(error, InvalidRequestError):  # by the engine, for example for its text
                    note(request, reason)
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
    """Returns the completion with the user whom a gateway names."""
    return replace(completion, tenant=request.headers.get(_TENANT) or completion.tenant)


async def _yield_one(answer: Awaitable[Any]) -> AsyncGenerator[Any, None]:
    yield await answer


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
        answer = find_answer(request, error)
        note_refusal(request, answer[0])
        await _send(response, form.framing.write(describe_refusal(request, *answer)))
    return response


async def _send(response: web.StreamResponse, event: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # the editor has gone, and this is about to be cancelled
        await response.write(event)
