"""The web application of the playground: who may ask, the page's files, and its WebSockets.

Any program of this machine, and any web page in the user's browser, can send requests to a port on loopback. Three
things tell them apart:

- the token: a random part of all addresses that other programs and pages cannot guess;
- `Host`: a page whose name was made to point at loopback (DNS rebinding) sends its own name;
- `Origin`: browsers say which page opens a WebSocket, and same-origin rules do not stop it.
"""

import asyncio
import contextlib
import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.typedefs import Handler

from inference.platforms import ADDRESS, find_stranger
from lsp_server.backend import CompletionBackend
from lsp_server.privacy.guard import Guard
from lsp_server.server import MidtokenServer
from midtoken.playground.asker import Asker
from midtoken.playground.pictures import Message, Question, to_json

_MAX_MESSAGE_BYTES = 4 * 2**20
_IDLE_S = 30.0  # of a connection without a whole head of a request
_HEARTBEAT_S = 30.0  # a browser that has vanished is noticed within this time
_CLOSE_S = 1.0  # a page is given this time to say that it has closed too


class _Writer:
    """Sends what a language server writes to its page."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the page has gone
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
        self._backend = backend
        self._build_server = build_server
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
                        await server.settle()
                        server.protocol.receive(message.data.encode())
            finally:
                await server.close_all()
        return socket

    async def serve_picture(self, request: web.Request) -> web.WebSocketResponse:
        """Answers the page's questions about healing."""
        async with self._accept(request) as socket:

            async def send(number: int, message: Message) -> None:
                with contextlib.suppress(ConnectionError):  # the page has gone
                    await socket.send_str(to_json(number, message))

            asker = Asker(self._backend, self._guard, send)
            try:
                async for message in socket:
                    if message.type is WSMsgType.TEXT:
                        asker.ask(Question(**json.loads(message.data)))
            finally:
                await asker.close()
        return socket

    async def close(self) -> None:
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


@dataclass(frozen=True, slots=True)
class Gate:
    """The address of one playground."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def base_path(self) -> str:
        """The path of the page, which begins all others."""
        return f"/{self.token}/"

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.port}{self.base_path}"


async def start_app(
    gate: Gate,
    page: Path,
    backend: CompletionBackend,
    build_server: Callable[[], MidtokenServer],
    listener: socket.socket,
    is_remote: bool = False,
) -> web.AppRunner:
    """Serves the playground on a socket that listens. `cleanup` of the result ends all that the pages use.

    `page`: the folder of the built page. `build_server` returns a language server. `is_remote`: text may go to
    another machine.
    """
    sockets = PageSockets(backend, build_server, is_remote=is_remote)

    async def show_page(_request: web.Request) -> web.FileResponse:
        return web.FileResponse(page / "index.html")

    async def close(_app: web.Application) -> None:
        await sockets.close()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        stranger = find_stranger(request.headers)
        return await handler(request) if stranger is None else web.Response(status=403, text=f"{stranger}\n")

    app = web.Application(middlewares=[guard])
    app.router.add_get(gate.base_path, show_page)
    app.router.add_get(f"{gate.base_path}lsp", sockets.serve_editor)
    app.router.add_get(f"{gate.base_path}healing", sockets.serve_picture)
    app.router.add_static(gate.base_path, page)
    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(close)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_END_S, keepalive_timeout=_IDLE_S)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers["Content-Security-Policy"] = _POLICY.format(host=request.host)
