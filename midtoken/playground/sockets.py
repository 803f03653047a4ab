"""The WebSockets of the pages. Each page has one for its editor and one for its picture; both end with it."""

import asyncio
import contextlib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence

from aiohttp import WSCloseCode, WSMsgType, web

from inference.errors import InvalidRequestError
from inference.platforms import Self, timeout
from lsp_server.errors import BrokenInputError
from lsp_server.messages import MAX_BODY_BYTES, read_body
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from midtoken.playground.asker import Asker, Link
from midtoken.playground.pictures import Failure, Message, read_question, to_json

_MAX_MESSAGE_BYTES = 4 * 2**20
_HEARTBEAT_S = 30.0  # a browser that has vanished is noticed within this time
_CLOSE_S = 1.0  # a page is given this time to say that it has closed too


class LanguageServerProcess:
    """The process. It ends when its input is closed, so also when the playground is killed."""

    def __init__(self, process: Process, end_s: float = 2.0) -> None:
        """Use `start`. A process that takes longer than `end_s` to end is killed."""
        self._process = process
        self._end_s = end_s

    @classmethod
    async def start(cls, command: Sequence[str]) -> Self:
        """Starts it in a session of its own: Ctrl-C in a terminal reaches the playground, which ends it."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, limit=MAX_BODY_BYTES, start_new_session=True
        )
        return cls(process)

    async def send(self, body: bytes) -> None:
        """Sends a message. Does nothing if the process has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            await self._process.stdin.drain()

    async def read(self) -> bytes | None:
        """Returns the next message; None when the process has ended."""
        assert self._process.stdout is not None
        try:
            return await read_body(self._process.stdout)
        except BrokenInputError:  # it was killed inside a message
            return None

    async def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with timeout(self._end_s):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class PageSockets:
    """Serves the WebSockets, and closes those that are open."""

    def __init__(self, link: Link, language_server: Sequence[str], max_pages: int = 8, is_remote: bool = False) -> None:
        """`language_server` is the command that starts one. Each of at most `max_pages` pages gets its own.

        `is_remote`: text may go to another machine.
        """
        self._link = link
        self._language_server = language_server
        self._max_pages = max_pages
        self._guard = Guard(Policy({}), is_remote=is_remote)
        self._open: set[web.WebSocketResponse] = set()
        self._num_editors = 0

    async def serve_editor(self, request: web.Request) -> web.WebSocketResponse:
        """Passes messages between the page's editor and a language server of its own."""
        async with self._accept(request) as socket:
            if self._num_editors >= self._max_pages:
                text = f"{self._max_pages} pages of this playground are open already"
                await socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=text.encode())
                return socket
            self._num_editors += 1
            try:
                server = await LanguageServerProcess.start(self._language_server)
                try:
                    await _pass_messages(socket, server)
                finally:
                    await server.close()
            finally:
                self._num_editors -= 1
        return socket

    async def serve_picture(self, request: web.Request) -> web.WebSocketResponse:
        """Answers the page's questions about healing."""
        async with self._accept(request) as socket:

            async def send(message: Message) -> None:
                with contextlib.suppress(ConnectionError):  # the page has gone
                    await socket.send_str(to_json(message))

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
        socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, timeout=_CLOSE_S, max_msg_size=_MAX_MESSAGE_BYTES)
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
        await socket.send_str(to_json(Failure(0, "connection", str(error))))


async def _pass_messages(socket: web.WebSocketResponse, server: LanguageServerProcess) -> None:
    """Returns when the page has gone or the language server has ended."""
    answers = asyncio.create_task(_pass_answers(socket, server))
    try:
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await server.send(message.data.encode())
    finally:
        answers.cancel()


async def _pass_answers(socket: web.WebSocketResponse, server: LanguageServerProcess) -> None:
    with contextlib.suppress(ConnectionError):  # the page has gone
        while (body := await server.read()) is not None:
            await socket.send_str(body.decode())
        await socket.close(code=WSCloseCode.INTERNAL_ERROR, message=b"the language server has ended")
