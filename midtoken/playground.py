"""The web application of `midtoken playground`: a page with an editor, and a picture of healing at its cursor.

Any program of this machine, and any web page in the user's browser, can send requests to a port on loopback. Three
things tell them apart:

- the token: a random part of all addresses that other programs and pages cannot guess;
- `Host`: a page whose name was made to point at loopback (DNS rebinding) sends its own name;
- `Origin`: browsers say which page opens a WebSocket, and same-origin rules do not stop it.

A page gets the objects of editors/playground/src/messages.ts. All texts to show are in printable form: blanks, tabs,
line ends, control and bidirectional characters are marks.
"""

import asyncio
import contextlib
import dataclasses
import json
import math
import secrets
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any  # JSON has no types

from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.typedefs import Handler
from rich.cells import cell_len

from inference.platforms import find_stranger
from inference.protocol.completion import (
    CompletionRequest,
    ExplainedNode,
    Explanation,
    Extent,
    FinishReason,
    Healing,
)
from lsp_server.backend import CompletionBackend
from lsp_server.context import Context
from lsp_server.errors import to_midtoken_error
from lsp_server.guard import Guard
from lsp_server.server import MidtokenServer
from midtoken.answer import compute_shares, mark_blanks
from midtoken.api import Completion, read_completion

_MAX_MESSAGE_BYTES = 4 * 2**20  # twice the longest text
_IDLE_S = 30.0  # of a connection without a whole head of a request
_HEARTBEAT_S = 30.0  # a browser that has vanished is noticed within this time
_CLOSE_S = 1.0  # a page is given this time to say that it has closed too


class _Writer:
    """Sends what a language server writes to its page, until that has gone."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            await self._socket.send_str(data.decode())

    async def close(self) -> None: ...


class PageSockets:
    """Serves the WebSockets, and closes those that are open. A page has one for its editor and one for its picture."""

    def __init__(
        self, backend: CompletionBackend, build_server: Callable[[], MidtokenServer], is_remote: bool = False
    ) -> None:
        """`build_server` returns a language server. Each page gets its own.

        `is_remote`: text may go to another machine.
        """
        self._backend, self._build_server = backend, build_server
        self._guard = Guard(is_remote=is_remote)
        self._open: set[web.WebSocketResponse] = set()

    async def serve_editor(self, request: web.Request) -> web.WebSocketResponse:
        """Passes messages between the page's editor and a language server of its own, in this process."""
        async with self._accept(request) as socket:
            server = self._build_server()
            server.protocol.set_writer(_Writer(socket), include_headers=False)
            try:
                async for message in socket:
                    if message.type is WSMsgType.TEXT:
                        server.protocol.handle_message(json.loads(message.data))
                        await asyncio.sleep(0)  # a request must see the text before the edits that come after it
            finally:
                await server.assistant.close_all()
        return socket

    async def serve_picture(self, request: web.Request) -> web.WebSocketResponse:
        """Answers the page's questions about healing."""
        async with self._accept(request) as socket:

            async def send(message: object) -> None:
                await _Writer(socket).write(json.dumps(message).encode())

            answers = PageAnswers(self._backend, self._guard, send)
            try:
                async for message in socket:
                    if message.type is WSMsgType.TEXT:
                        answers.ask(**json.loads(message.data))
            finally:
                await answers.close()
        return socket

    async def close(self, _app: web.Application) -> None:
        """Closes all that are open. Their language servers end."""
        text = b"the playground has ended"
        await asyncio.gather(*(each.close(code=WSCloseCode.GOING_AWAY, message=text) for each in [*self._open]))

    @contextlib.asynccontextmanager
    async def _accept(self, request: web.Request) -> AsyncIterator[web.WebSocketResponse]:
        socket = web.WebSocketResponse(
            heartbeat=_HEARTBEAT_S, timeout=_CLOSE_S, max_msg_size=_MAX_MESSAGE_BYTES, compress=False
        )
        await socket.prepare(request)
        self._open.add(socket)
        try:
            yield socket
        finally:
            self._open.discard(socket)


_END_S = 3.0  # open requests are given this time when the playground ends
# Monaco writes style attributes, and has cursors and icons in data addresses.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; "
    "connect-src ws://{host}; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def make_path() -> str:
    """Returns a path of the page, which begins all others, and which nobody can guess."""
    return f"/{secrets.token_urlsafe(24)}/"


async def start_app(
    path: str,
    page: Path,
    backend: CompletionBackend,
    build_server: Callable[[], MidtokenServer],
    listener: socket.socket,
    is_remote: bool = False,
) -> web.AppRunner:
    """Serves the playground on a socket that listens. `cleanup` of the result ends all that the pages use.

    `path`: of `make_path`. `page`: the folder of the built page. `build_server` returns a language server.
    `is_remote`: text may go to another machine.
    """
    sockets = PageSockets(backend, build_server, is_remote=is_remote)

    async def show_page(_request: web.Request) -> web.FileResponse:
        return web.FileResponse(page / "index.html")

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        stranger = find_stranger(request.headers)
        return await handler(request) if stranger is None else web.Response(status=403, text=f"{stranger}\n")

    app = web.Application(middlewares=[guard])
    app.router.add_get(path, show_page)
    app.router.add_get(f"{path}lsp", sockets.serve_editor)
    app.router.add_get(f"{path}healing", sockets.serve_picture)
    app.router.add_static(path, page)
    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(sockets.close)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_END_S, keepalive_timeout=_IDLE_S)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers["Content-Security-Policy"] = _POLICY.format(host=request.host)


_MAX_TOKENS = 16  # as much of each completion as the page has room for
_NUM_TYPED_CHARS = 14  # of the cursor's line, before each completion


class PageAnswers:
    """Answers the questions of one page. A new question supersedes the one before."""

    def __init__(self, backend: CompletionBackend, guard: Guard, send: Callable[[Any], Awaitable[None]]) -> None:
        self._backend, self._guard, self._send = backend, guard, send
        self._page = uuid.uuid4().hex
        self._task: asyncio.Task[None] | None = None

    def ask(self, number: int, prefix: str, suffix: str) -> None:
        """Starts to answer a question about the text around the cursor. The answers repeat its number."""
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(self._answer({"number": number}, Context(prefix, suffix)))

    async def close(self) -> None:
        """Cancels what is asked."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _answer(self, head: dict[str, Any], typed: Context) -> None:
        """Draws the exact strategy first. What is shown is what is sent."""
        try:
            context = self._guard.redact_context(typed)
            for healing in Healing:
                answer = await self._complete(context, healing)
                if healing is Healing.EXACT:
                    await self._send(head | draw_healing(context.prefix, answer))
                await self._send(head | draw_strategy(healing, answer))
        except Exception as error:  # nobody awaits this task's result
            await self._send(head | {"kind": "failure", "text": str(to_midtoken_error(error))})

    async def _complete(self, context: Context, healing: Healing) -> Completion:
        """Each strategy is a tenant, so that none gains from what another has prefilled."""
        request = CompletionRequest(
            context.prefix,
            suffix=context.suffix,
            max_tokens=_MAX_TOKENS,
            healing=healing,
            extent=Extent.SINGLE_LINE,
            explain=healing is Healing.EXACT,
            tenant=f"{self._page}-{healing}",
        )
        return await read_completion(self._backend.stream(self._guard.clear(request, ())))


def draw_healing(prefix: str, answer: Completion) -> dict[str, Any]:
    """Returns the picture of an exact answer that was asked for with `explain`. Raises ServerError without one.

    `healed_tokens` are the tokenizer's own tokens of the healed bytes, `cells` the characters of these.
    """
    explanation, text = answer.explanation, prefix.encode()
    healed = text[len(text) - answer.last.healed_bytes :]
    # Where characters or tokens of the tree begin or end in the healed bytes.
    chars = {at for at, byte in enumerate(healed) if byte & 0xC0 != 0x80}
    edges = sorted(chars | {0, len(healed)} | {node.num_covered_bytes for node in explanation.nodes})
    shown = [mark_blanks(healed[start:end].decode(errors="surrogateescape")) for start, end in pairwise(edges)]
    line = prefix[prefix.rfind("\n") + 1 :].lstrip()
    return {
        "kind": "healing",
        "kept_tokens": [*map(mark_blanks, explanation.kept_tail)],
        "healed_tokens": [*map(mark_blanks, explanation.unhealed_tokens)],
        "num_healed_bytes": len(healed),
        "cells": [{"shown": each, "width": cell_len(each)} for each in shown],
        "paths": [*_draw_paths(explanation, healed, edges)],
        "typed": ("…" if len(line) > _NUM_TYPED_CHARS else "") + mark_blanks(line[-_NUM_TYPED_CHARS:]),
        "times": dataclasses.asdict(answer.stats),
    }


def draw_strategy(healing: Healing, answer: Completion) -> dict[str, Any]:
    """Returns the picture of one strategy's completion, with the time that it took after the wait for ghost text.

    `pieces`: each with the probability of the text up to its end; none if no probabilities are known.
    """
    pieces = answer.likely.find_pieces()
    return {
        "kind": "strategy",
        "healing": str(healing),
        "completion": mark_blanks(answer.text),
        "pieces": [{"shown": mark_blanks(text), "probability": probability} for text, probability in pieces],
        "is_cut": answer.finish_reason is FinishReason.LENGTH,
        "num_forwards": answer.stats.num_forwards,
        "took_ms": answer.stats.total_ms - answer.stats.queue_ms,
    }


def _draw_paths(explanation: Explanation, healed: bytes, edges: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yields a path for each crossing of the covering tree, parents before their children.

    `token_cells`: how many cells each token before the crossing covers; `num_shared`: how many of these tokens are on
    an earlier path, too; `share`: of the probability of all paths, with any next token; `best_share`: with the best.
    """
    nodes, shares = explanation.nodes, compute_shares(explanation.nodes)
    shown: set[int] = {0}
    for path in _list_paths(nodes, [0]):
        share, node = shares[path[-1]], nodes[path[-1]]
        if share is None or node.log_mass is None or node.best_log_prob is None:
            continue
        covered = [edges.index(nodes[each].num_covered_bytes) for each in path]
        yield {
            "token_cells": [end - start for start, end in pairwise(covered)],
            "num_shared": len(shown.intersection(path[1:])),
            "share": share,
            "best_share": share * math.exp(node.best_log_prob - node.log_mass),
            "next_token": _find_ahead(node.best_token or "", healed[node.num_covered_bytes :]),
            "is_chosen": tuple(nodes[each].token for each in path[1:]) == explanation.chosen_tokens[:-1],
        }
        shown.update(path)


def _list_paths(nodes: Sequence[ExplainedNode], path: list[int]) -> Iterator[list[int]]:
    """Yields this path from the root, and those that it begins, so that paths with a beginning in common meet."""
    yield path
    for child, node in enumerate(nodes):
        if node.parent == path[-1]:
            yield from _list_paths(nodes, [*path, child])


def _find_ahead(token: str, remaining: bytes) -> str:
    r"""Returns the part of a token after the remaining bytes. In the token, bytes that are not UTF-8 are \xNN."""
    data = token.encode()
    if data.startswith(remaining):
        return mark_blanks(data[len(remaining) :].decode(errors="backslashreplace"))
    return mark_blanks(token.removeprefix(remaining.decode(errors="backslashreplace")))
