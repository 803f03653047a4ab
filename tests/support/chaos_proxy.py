"""A proxy between a client and a server that delays, cuts and spoils what passes.

It listens on loopback, and connects to a port there or to a Unix socket. (Debian has no package of toxiproxy.)
"""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from pathlib import Path

from inference.private_files import open_folder

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
        self._upstream, self._random = upstream, random.Random(0)
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Opens its port; later the same one."""
        self._listener = await asyncio.start_server(self._accept, _ADDRESS, self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Closes its port and all connections."""
        if self._listener is not None:
            self._listener.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @asynccontextmanager
    async def failing(self, mode: Mode) -> AsyncIterator[None]:
        """In this mode inside the block."""
        if mode is Mode.REFUSE:
            await self.close()
        self.mode = mode
        try:
            yield
        finally:
            self.mode = Mode.PASS
            if mode is Mode.REFUSE:
                await self.listen()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(OSError):
            from_server, to_server = await self._connect()
            self._writers.add(to_server)
            up = asyncio.ensure_future(self._pump(reader, to_server, self._pass_up))
            down = asyncio.ensure_future(self._pump(from_server, writer, self._pass_down))
            try:
                await asyncio.wait([up, down], return_when=asyncio.ALL_COMPLETED)
            finally:
                for pump in (up, down):
                    pump.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
                to_server.transport.abort()
                self._writers.discard(to_server)
        writer.transport.abort()
        self._writers.discard(writer)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._upstream.startswith("unix:"):
            path = Path(self._upstream.removeprefix("unix:"))
            with open_folder(path.parent) as folder:  # the path may be too long
                return await asyncio.open_unix_connection(folder / path.name)
        return await asyncio.open_connection(_ADDRESS, int(self._upstream.rpartition(":")[2]))

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pass_on: Callable[[bytes, asyncio.StreamWriter], Awaitable[bool]],
    ) -> None:
        """Passes on until one side ends."""
        with suppress(OSError):
            while (data := await reader.read(_CHUNK_BYTES)) and await pass_on(data, writer):
                await writer.drain()
        if not writer.transport.is_closing() and self.mode is not Mode.BLACK_HOLE:
            writer.close()

    async def _pass_up(self, data: bytes, writer: asyncio.StreamWriter) -> bool:
        if not await self._wait():
            return True
        writer.write(data)
        return True

    async def _pass_down(self, data: bytes, writer: asyncio.StreamWriter) -> bool:
        """Returns whether the connection lives on."""
        if not await self._wait():
            return True
        match self.mode:
            case Mode.RESET:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
                return False
            case Mode.MALFORMED:
                writer.write(self._random.randbytes(len(data)))
            case Mode.TRUNCATED:
                writer.write(data[: len(data) // 2])
                writer.close()
                return False
            case _:
                writer.write(data)
        return True

    async def _wait(self) -> bool:
        """Waits as long as the mode says. Returns whether the bytes pass at all."""
        if self.mode is Mode.DELAY:
            await asyncio.sleep(_DELAY_S)
        return self.mode is not Mode.BLACK_HOLE


@asynccontextmanager
async def run_proxy(upstream: str) -> AsyncIterator[ChaosProxy]:
    """Runs it inside the block. `upstream`: HOST:PORT on loopback, or unix:PATH."""
    proxy = ChaosProxy(upstream)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()
