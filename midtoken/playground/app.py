"""The web application of the playground: who may ask, the page's files, and its WebSockets.

Any program of this machine, and any web page in the user's browser, can send requests to a port on loopback. Three
things tell them apart:

- the token: a random part of the address that other programs and pages cannot guess;
- `Host`: a page whose name was made to point at loopback (DNS rebinding) sends its own name;
- `Origin`: browsers say which page opens a WebSocket, and same-origin rules do not stop it.
"""

import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from inference.serving.loopback import ADDRESS, find_stranger
from lsp_server.server import MidtokenServer
from midtoken.playground.asker import Link
from midtoken.playground.sockets import PageSockets

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

    def find_refusal(self, path: str, headers: Mapping[str, str], *, needs_origin: bool) -> str | None:
        """Returns why a request is refused, in words for a person; None if it is one of the page's own.

        `needs_origin`: the request opens a WebSocket, for which browsers always send an Origin.
        """
        if stranger := find_stranger(headers, self.port):
            return stranger
        if needs_origin and "Origin" not in headers:
            return "The playground opens a WebSocket only for its own page."
        first = path.split("/")[1] if path.count("/") >= 2 else ""
        if not secrets.compare_digest(first.encode(errors="surrogateescape"), self.token.encode()):
            return "This address has no valid token. Open the address that `midtoken playground` has printed."
        return None


async def start_app(
    gate: Gate,
    page: Path,
    link: Link,
    build_server: Callable[[], MidtokenServer],
    listener: socket.socket,
    on_page: Callable[[], None] = lambda: None,
    is_remote: bool = False,
) -> web.AppRunner:
    """Serves the playground on a socket that listens. `cleanup` of the result ends all that the pages use.

    `page`: the folder of the built page. `build_server` returns a language server. `on_page` is called when a
    browser requests the page. `is_remote`: text may go to another machine.
    """
    sockets = PageSockets(link, build_server, is_remote=is_remote)

    async def show_page(_request: web.Request) -> web.FileResponse:
        on_page()
        return web.FileResponse(page / "index.html")

    async def close(_app: web.Application) -> None:
        await sockets.close()
        await link.close()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        opens_socket = request.headers.get("Upgrade", "").lower() == "websocket"
        refusal = gate.find_refusal(request.path, request.headers, needs_origin=opens_socket)
        return await handler(request) if refusal is None else web.Response(status=403, text=f"{refusal}\n")

    app = web.Application(middlewares=[guard])
    app.router.add_get(gate.base_path, show_page)
    app.router.add_get(f"{gate.base_path}lsp", sockets.serve_editor)
    app.router.add_get(f"{gate.base_path}healing", sockets.serve_picture)
    app.router.add_static(gate.base_path, page)
    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(close)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_END_S)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers["Content-Security-Policy"] = _POLICY.format(host=request.host)
