"""The ports of a server that a person starts. What arrives there is passed on to the sockets of tritonserver.

tritonserver has no ports itself. So nobody can take one while it is started again, and what would end it does not reach
it over HTTP: any user of the machine, and any web page in a browser, can send requests to a port on loopback.
"""

import asyncio
import contextlib
import ssl
from asyncio import timeout
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any  # a pair of streams is passed as two arguments

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler

from inference.serving.calls import SOCKET_SCHEME
from inference.serving.client import Client
from inference.serving.generate import PATH, STARTING, generate, refuse
from inference.serving.launcher import ServerOptions
from inference.serving.loopback import find_stranger, is_held, listen, pass_on
from inference.serving.private_files import make_private_folder, open_folder
from inference.serving.readiness import Readiness
from inference.serving.triton_installation import GRPC, HTTP

MAX_BODY_BYTES = 4 * 2**20  # twice the longest text
LOG_TIME = "%Y-%m-%d %H:%M:%S"
_MAX_CONNECTIONS = 512  # to one port, of the 1,024 files that a process may usually open
_PATIENCE_S = 30.0  # with a client that sends a body, and with one that sends no whole head of a request
_HANDSHAKE_S = 5.0  # of TLS, in which a connection is not counted yet
_JSON = "application/json"
_LOOK_S = 0.1  # between looks at a client that has closed its sending side
_END_S = 0.1  # for open requests, which are cancelled then; aiohttp would take 0 for no limit


@contextlib.asynccontextmanager
async def open_ports(ports: Sequence[int], options: ServerOptions, readiness: Readiness) -> AsyncIterator[list[int]]:
    """Listens on the ports inside the block, and yields them; for 0, a free one. They are for HTTP and gRPC.

    Triton is ready, for those who ask over HTTP, while it would answer a completion. Raises LaunchError.
    """
    async with contextlib.AsyncExitStack() as stack:
        make_private_folder(options.state_dir)
        folder = stack.enter_context(open_folder(options.state_dir))
        listeners = [stack.enter_context(listen(port)) for port in ports]
        paths = [folder / options.find_socket(name).name for name in (HTTP, GRPC)]
        await stack.enter_async_context(_serve_http(listeners[0], paths, readiness))
        room = asyncio.Semaphore(_MAX_CONNECTIONS)
        server = await asyncio.start_server(partial(_pass_on, paths[1], room), sock=listeners[1])
        stack.callback(server.close)
        yield [each.getsockname()[1] for each in listeners]


@contextlib.asynccontextmanager
async def serve_http(
    app: web.Application,
    listener: socket,
    tls: ssl.SSLContext | None = None,
    patience_s: float = _PATIENCE_S,
    max_connections: int = _MAX_CONNECTIONS,
) -> AsyncIterator[None]:
    """Answers HTTP requests inside the block. A request whose connection ends is cancelled.

    A client that closes only its sending side is answered, if it is on this machine, and there is no TLS.

    A body has arrived when the handler is called, and nothing is unpacked. A body that takes longer than `patience_s`
    has status 408. A connection without a whole head for that time is closed, and one beyond `max_connections` at once.
    """

    @web.middleware
    async def read_body(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            async with timeout(patience_s):
                await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        except web.RequestPayloadError:
            raise web.HTTPBadRequest from None
        return await handler(request)

    app.middlewares.append(read_body)
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=_END_S,
        keepalive_timeout=patience_s,
        auto_decompress=False,
    )
    await runner.setup()
    server = runner.server
    assert server is not None, "it is set up"

    loop = asyncio.get_running_loop()

    def accept() -> asyncio.Protocol:
        is_full = len(server.connections) >= max_connections
        return _Full() if is_full else _Connection(server, loop=loop, **server._kwargs)

    listening = await loop.create_server(
        accept, sock=listener, ssl=tls, ssl_handshake_timeout=None if tls is None else _HANDSHAKE_S
    )
    try:
        yield
    finally:
        listening.close()
        await runner.cleanup()


class _Connection(RequestHandler):
    """A connection that stays open for the answer when the client has closed only its sending side."""

    __slots__ = ()

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp's own closes the connection
        """Returns whether it stays open."""
        if not self._is_asked() or self.ssl_context is not None or not self._is_held():
            return False
        self._watch()
        return True

    def _watch(self) -> None:
        """Closes the connection after the last answer, and ends the request once the client has closed its end.

        Nothing tells that as long as nothing is sent.
        """
        if self.transport is None or self.transport.is_closing():
            return
        if not self._is_asked():
            self.transport.close()
        elif self._is_held():
            if not self._messages:
                self.close()  # after this answer
            self._loop.call_later(_LOOK_S, self._watch)
        else:
            self.transport.abort()

    def _is_asked(self) -> bool:
        return bool(self._messages) or (self._request_count > 0 and self._waiter is None)

    def _is_held(self) -> bool:
        assert self.transport is not None, "it is open"
        client, server = (self.transport.get_extra_info(name)[:2] for name in ("peername", "sockname"))
        return is_held(client, server)


class _Full(asyncio.Protocol):
    """A connection that is one too many."""

    def connection_made(self, transport: Any) -> None:
        transport.abort()


async def _pass_on(path: Path, room: asyncio.Semaphore, *client: Any) -> None:
    with contextlib.closing(client[1]):
        if not room.locked():
            async with room:
                with contextlib.suppress(OSError):  # tritonserver is being started again
                    opening = partial(asyncio.open_unix_connection, path)  # type: ignore[attr-defined,unused-ignore]
                    await pass_on(client, opening)


@contextlib.asynccontextmanager
async def _serve_http(listener: socket, paths: Sequence[Path], readiness: Readiness) -> AsyncIterator[None]:
    """Completions go to tritonserver over gRPC. Of all other requests, those that only read go to its HTTP socket."""
    http, grpc = paths

    @web.middleware
    async def refuse_strangers(request: web.Request, handler: Handler) -> web.StreamResponse:
        if stranger := find_stranger(request.headers):  # before anything of the body is read
            return refuse(403, stranger)
        if request.method == "POST" and request.content_type != _JSON:
            return refuse(415, f"Send JSON, with the header Content-Type: {_JSON}.")
        return await handler(request)

    async with (
        ClientSession("http://localhost", connector=UnixConnector(str(http)), timeout=ClientTimeout()) as triton,
        Client(f"{SOCKET_SCHEME}{grpc}") as client,
    ):
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[refuse_strangers])
        app.router.add_post(PATH, partial(generate, client))
        app.router.add_get("/{path:.*}", partial(_forward, triton, readiness))
        async with serve_http(app, listener):
            yield


async def _forward(triton: ClientSession, readiness: Readiness, request: web.Request) -> web.StreamResponse:
    """Passes on the path, but no body and no headers: Triton 2.51 ends at some forms, for example."""
    if request.path.endswith("/ready") and (problem := await readiness.find_problem()):
        return refuse(503, problem)  # Triton says that it is ready also if a model's process has ended
    try:
        async with triton.get(request.rel_url, headers={"Accept-Encoding": "identity"}) as answer:
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
    except ClientError:
        return refuse(503, STARTING)
