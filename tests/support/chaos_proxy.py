"""A proxy between a client and a server that delays, cuts and spoils what passes.

It listens on loopback, and connects to a port there. (Debian has no package of toxiproxy.)
"""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum, auto

_ADDRESS = "127.0.0.1"
_CHUNK_BYTES = 2**16
_DELAY_S = 0.3
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


class Mode(Enum):
    """What happens to the bytes."""

    PASS = auto()
    DELAY = auto()
    BLACK_HOLE = auto()  # nothing passes, never; connections stay open
    REFUSE = auto()  # nobody listens, and connections are closed
    RESET = auto()  # connections are reset after the first bytes of an answer
    MALFORMED = auto()  # the answers are random bytes
    TRUNCATED = auto()  # half of the first bytes of an answer, and then the end


class ChaosProxy:
    """Use `run_proxy`."""

    def __init__(self, upstream: str) -> None:
        self.mode, self.port = Mode.PASS, 0
        self._upstream_port = int(upstream.rpartition(":")[2])
        self._random = random.Random(0)
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Opens its port; later the same one."""
        self._listener = await asyncio.start_server(self._serve, _ADDRESS, self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Closes its port and all connections."""
        if self._listener is not None:
            self._listener.close()
        for writer in self._writers:
            writer.transport.abort()

    @asynccontextmanager
    async def failing(self, mode: Mode) -> AsyncIterator[None]:
        """In this mode inside the block."""
        if mode is Mode.REFUSE:
            self.close()
        self.mode = mode
        try:
            yield
        finally:
            self.mode = Mode.PASS
            if mode is Mode.REFUSE:
                await self.listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = {writer}
        try:
            from_server, to_server = await asyncio.open_connection(_ADDRESS, self._upstream_port)
            writers.add(to_server)
            self._writers |= writers
            await asyncio.gather(self._pump(reader, to_server), self._pump(from_server, writer, is_answer=True))
        except OSError:  # one side is gone
            pass
        finally:
            self._writers -= writers
            for each in writers:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool = False) -> None:
        """Passes on until one side ends."""
        while data := await reader.read(_CHUNK_BYTES):
            if self.mode is Mode.DELAY:
                await asyncio.sleep(_DELAY_S)
            if self.mode is Mode.BLACK_HOLE:
                continue
            if is_answer and self.mode is Mode.RESET:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                raise ConnectionResetError
            if is_answer and self.mode is Mode.TRUNCATED:
                writer.write(data[: len(data) // 2])
                break
            writer.write(self._random.randbytes(len(data)) if is_answer and self.mode is Mode.MALFORMED else data)
            await writer.drain()
        if self.mode is not Mode.BLACK_HOLE:
            writer.close()


@asynccontextmanager
async def run_proxy(upstream: str) -> AsyncIterator[ChaosProxy]:
    """Runs it inside the block. `upstream`: ends with a port on loopback."""
    proxy = ChaosProxy(upstream)
    await proxy.listen()
    try:
        yield proxy
    finally:
        proxy.close()
