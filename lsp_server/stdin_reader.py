"""Reads stdin for pygls. Its own reader takes three changes of threads for each message, this one takes one."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable

_NUM_BYTES = 2**16  # read at once


class StdinReader:
    """The `AsyncReader` of pygls for a file descriptor that is a pipe, a terminal, a socket or a file."""

    def __init__(self, descriptor: int, settle: Callable[[], Awaitable[None]]) -> None:
        """Starts to read, in a thread that ends with the process. Must be called in the event loop that reads.

        `settle` is awaited before each message: until then, the one before it may not be done.
        """
        self._settle = settle
        self._stream = asyncio.StreamReader()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(descriptor,), name="midtoken-stdin", daemon=True).start()

    async def readline(self) -> bytes:
        """Returns the next line; what is left of it at the end of the input."""
        return await self._stream.readline()

    async def readexactly(self, num_bytes: int) -> bytes:
        """Returns the next bytes; nothing if the input ends before."""
        await self._settle()
        try:
            return await self._stream.readexactly(num_bytes)
        except asyncio.IncompleteReadError:
            return b""

    def _read(self, descriptor: int) -> None:
        try:
            while data := os.read(descriptor, _NUM_BYTES):
                self._loop.call_soon_threadsafe(self._stream.feed_data, data)
            self._loop.call_soon_threadsafe(self._stream.feed_eof)
        except RuntimeError:  # the loop is closed, so nobody reads
            return
        except OSError as error:
            self._loop.call_soon_threadsafe(self._stream.set_exception, error)
