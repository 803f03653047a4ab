"""The web application: requests of editors to completions of the server, whose text is cleared as an editor's is."""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol  # JSON has no types

from aiohttp import web
from aiohttp.typedefs import Handler

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerUnreachableError
from inference.protocol.completion import CompletionChunk, CompletionRequest, FinishReason
from inference.serving.ports import MAX_BODY_BYTES, serve_http
from lsp_server.backend import CompletionBackend
from lsp_server.context import Context
from lsp_server.errors import NotSentError, to_midtoken_error
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Cleared, Guard
from lsp_server.privacy.redaction import Excerpt
from midtoken.front.answers import DONE, CompletionForm, InfillForm, Texts, to_json
from midtoken.front.asked import Asked, Fields, read_completion, read_infill
from midtoken.front.door import Door

_JSON = "application/json"
_TYPES = {401: "authentication_error", 403: "permission_error", 499: "superseded_error", 503: "unavailable_error"}
_Read = Callable[[Fields, str, str], Asked]
_Form = CompletionForm | InfillForm


class Backend(CompletionBackend, Protocol):
    """Answers completions, and says whether its model lives: `midtoken.connection.Connection`."""

    async def read_heartbeat_ms(self) -> float:
        """Returns for how long the model has made no progress. Raises ServerError."""


class _SupersededError(MidtokenError):
    """A newer request of the same client for what it edits has come."""


_STATUSES = (
    (InvalidRequestError, 400),
    (NotSentError, 400),
    (_SupersededError, 499),  # not 409, after which the openai package asks again
    (OverloadedError, 503),
    (ServerUnreachableError, 503),
)


@asynccontextmanager
async def open_front(door: Door, backend: Backend, model: str, is_remote: bool = False) -> AsyncIterator[None]:
    """Answers the door's requests inside the block.

    `model`: the name of the model for editors. `is_remote`: text may go to another machine.
    """
    front = _Front(door, backend, model, is_remote)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[front.guard])
    app.router.add_get("/health", front.tell_health)
    app.router.add_get("/v1/models", front.list_models)
    app.router.add_post("/v1/completions", partial(front.complete, read_completion, CompletionForm))
    app.router.add_post("/infill", partial(front.complete, read_infill, InfillForm))
    async with serve_http(app, door.listener, door.tls):
        yield


class _Front:
    def __init__(self, door: Door, backend: Backend, model: str, is_remote: bool) -> None:
        self._door, self._backend, self._model = door, backend, model
        self._guard = Guard(Policy({}), is_remote=is_remote)

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses who may not enter, and turns errors into answers."""
        if refusal := self._door.find_refusal(request.headers):
            return _refuse(*refusal)
        if request.method == "POST" and request.content_type != _JSON:
            return _refuse(415, f"Send JSON, with the header Content-Type: {_JSON}.")
        try:
            return await handler(request)
        except web.HTTPException as error:  # no such address, or a body that is too large
            return _refuse(error.status, error.reason)
        except Exception as error:
            return _refuse(_find_status(error), str(to_midtoken_error(error)))

    async def tell_health(self, _request: web.Request) -> web.Response:
        """Answers once the model does."""
        await self._backend.read_heartbeat_ms()
        return web.json_response({"status": "ok"})

    async def list_models(self, _request: web.Request) -> web.Response:
        """Names the one model."""
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "midtoken"}
        return web.json_response({"object": "list", "data": [model]})

    async def complete(self, read: _Read, form_of: type[_Form], request: web.Request) -> web.StreamResponse:
        """Answers a request for a completion, which ends with its connection."""
        try:
            fields = Fields(await request.json())
        except (ValueError, RecursionError):
            raise InvalidRequestError("the body is no JSON") from None
        client = f"{request.remote} {request.headers.get('User-Agent')}"
        asked = read(fields, client, request.headers.get("X-Session-ID", ""))
        form, texts = form_of(asked, self._model), Texts()
        chunks = _end_in_time(self._generate(asked.completion, form_of is InfillForm), asked.max_predict_ms)
        async with aclosing(chunks):
            if asked.streams:
                return await _stream(request, chunks, form, texts)
            async for chunk in chunks:
                texts.add(chunk)
        return web.json_response(form.write_whole(texts), dumps=to_json)

    async def _generate(self, completion: CompletionRequest, can_be_one: bool) -> AsyncGenerator[CompletionChunk, None]:
        """Yields the chunks. An engine that cannot generate several texts is asked for one, if that will do."""
        try:
            async with aclosing(self._backend.stream(self._clear(completion))) as chunks:
                async for chunk in chunks:
                    yield chunk
        except InvalidRequestError:
            if not can_be_one or completion.num_candidates == 1:
                raise
            async with aclosing(self._generate(replace(completion, num_candidates=1), can_be_one)) as chunks:
                async for chunk in chunks:
                    yield chunk

    def _clear(self, completion: CompletionRequest) -> Cleared[CompletionRequest]:
        """Raises InSecretError."""
        context = self._guard.clear_excerpt(None, Excerpt("", Context(completion.prefix, completion.suffix), ""))
        return context.map(lambda each: replace(completion, prefix=each.prefix, suffix=each.suffix))


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
                raise _SupersededError("a newer request of the same session or slot has come, so this one has ended")
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
            await _send(response, form.write_event(chunk))
        for event in form.write_end(texts):
            await _send(response, event)
    except Exception as error:
        if not response.prepared:
            raise
        await _send(response, _describe(_find_status(error), str(to_midtoken_error(error))))
    return response


async def _send(response: web.StreamResponse, event: object) -> None:
    with contextlib.suppress(ConnectionError):  # the editor has gone, and this is about to be cancelled
        await response.write(f"data: {event if event == DONE else to_json(event)}\n\n".encode())


def _find_status(error: Exception) -> int:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def _describe(status: int, reason: str) -> dict[str, Any]:
    kind = _TYPES.get(status, "server_error" if status == 500 else "invalid_request_error")
    return {"error": {"message": reason, "type": kind, "param": None, "code": status}}


def _refuse(status: int, reason: str) -> web.Response:
    return web.json_response(_describe(status, reason), status=status, dumps=to_json)
