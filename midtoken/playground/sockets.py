"""The WebSockets of the pages. Each page has one for its editor and one for its picture; both end with it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from aiohttp import WSCloseCode, WSMsgType, web

from inference.errors import InvalidRequestError
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from lsp_server.server import MidtokenServer
from midtoken.playground.asker import Asker, Link
from midtoken.playground.pictures import Failure, Message, read_question, to_json

_MAX_MESSAGE_BYTES = 4 * 2**20
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
    """Serves the WebSockets, and closes those that are open."""

    def __init__(self, link: Link, build_server: Callable[[], MidtokenServer], is_remote: bool = False) -> None:
        """`build_server` returns a language server. Each page gets its own.

        `is_remote`: text may go to another machine.
        """
        self._link = link
        self._build_server = build_server
        self._guard = Guard(Policy({}), is_remote=is_remote)
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

            asker = Asker(self._link, self._guard, send)
            try:
                async for message in socket:
                    if message.type is WSMsgType.TEXT:
                        await _ask(asker, message.data, socket)
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


async def _ask(asker: Asker, text: str, socket: web.WebSocketResponse) -> None:
    try:
        asker.ask(read_question(text))
    except InvalidRequestError as error:
        await socket.send_str(to_json(0, Failure("connection", str(error))))
