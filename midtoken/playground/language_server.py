"""A language server for one page: `midtoken lsp` as a process, whose messages pass through a WebSocket."""

import asyncio
import contextlib
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import Self

from lsp_server.errors import BrokenInputError
from lsp_server.messages import MAX_BODY_BYTES, read_body


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
            await asyncio.wait_for(self._process.wait(), self._end_s)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
