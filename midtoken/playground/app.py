"""The web application of the playground: who may ask, the page's files, and its WebSockets."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from midtoken.playground.gate import Gate
from midtoken.playground.link import Link
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
class Playground:
    """What a playground consists of."""

    gate: Gate
    page: Path  # the folder of the built page
    link: Link
    language_server: Sequence[str]  # the command that starts one


async def start_app(playground: Playground, listener: socket.socket) -> web.AppRunner:
    """Serves the playground on a socket that listens. `cleanup` of the result ends all that the pages use."""
    runner = web.AppRunner(_build_app(playground), access_log=None, shutdown_timeout=_END_S)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner


def _build_app(playground: Playground) -> web.Application:
    sockets = PageSockets(playground.link, playground.language_server)

    async def show_page(_request: web.Request) -> web.FileResponse:
        return web.FileResponse(playground.page / "index.html")

    async def close(_app: web.Application) -> None:
        await sockets.close()
        await playground.link.close()

    app = web.Application(middlewares=[_build_guard(playground.gate)])
    base = playground.gate.base_path
    app.router.add_get(base, show_page)
    app.router.add_get(f"{base}lsp", sockets.serve_editor)
    app.router.add_get(f"{base}healing", sockets.serve_picture)
    app.router.add_static(base, playground.page)
    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(close)
    return app


def _build_guard(gate: Gate) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        opens_socket = request.headers.get("Upgrade", "").lower() == "websocket"
        refusal = gate.find_refusal(request.path, request.headers, needs_origin=opens_socket)
        return await handler(request) if refusal is None else web.Response(status=403, text=f"{refusal}\n")

    return guard


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers["Content-Security-Policy"] = _POLICY.format(host=request.host)
