"""What a server holds: requests, memory, files; and what it leaves behind."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from inference.client.client import Client
from inference.errors import MidtokenError, OverloadedError
from tests.support.servers import TRITON, RunningServer

_MIB = 2**20
_SAMPLE_S = 0.5
END_S = 30.0  # a request that has no end by then has none


@dataclass(frozen=True, slots=True)
class Counts:
    """The requests of a slow model (`tests.support.slow_model`)."""

    created: int
    released: int
    held: int  # that the executor holds

    @property
    def is_even(self) -> bool:
        return self.created == self.released and self.held == 0


async def read_counts(client: Client) -> Counts:
    return Counts(**json.loads((await client.read_description()).runs_as))


async def find_unreleased(client: Client, within_s: float) -> int:
    """How many requests the server has not released after that time, with nothing left to do."""
    end = time.monotonic() + within_s
    while not (counts := await read_counts(client)).is_even and time.monotonic() < end:
        await asyncio.sleep(0.2)
    return max(counts.created - counts.released, counts.held)


@asynccontextmanager
async def watch_memory(server: RunningServer) -> AsyncIterator[list[float]]:
    """Samples what all processes of a server hold together, in MiB, inside the block."""
    samples = list[float]()

    async def sample() -> None:
        while True:
            samples.append(await asyncio.to_thread(_measure_memory_mib, server))
            await asyncio.sleep(_SAMPLE_S)

    task = asyncio.create_task(sample())
    try:
        yield samples
    finally:
        task.cancel()


def _measure_memory_mib(server: RunningServer) -> float:
    num_bytes = 0
    for pid in server.find_processes():
        with suppress(psutil.NoSuchProcess):
            memory = psutil.Process(pid).memory_info()
            num_bytes += memory.rss - memory.shared
    return num_bytes / _MIB


def count_files(server: RunningServer) -> dict[int, int]:
    """How many files each tritonserver has open, by its process; without Triton, the whole server."""
    is_triton = server.runtime == TRITON
    lines = server.find_processes()
    return {
        pid: psutil.Process(pid).num_fds() for pid, line in lines.items() if not is_triton or "/tritonserver " in line
    }


def find_orphans(server: RunningServer, regions: Sequence[Path]) -> list[str]:
    """Processes, shared memory and sockets that are left of a server that has ended."""
    processes = [f"process {pid}: {line[:80]}" for pid, line in server.find_processes().items()]
    sockets = [path for path in server.state_dir.rglob("*") if path.is_socket()]
    return processes + [f"file {path}" for path in (*regions, *sockets) if path.exists()]


@dataclass(slots=True)
class Tally:
    """What became of the requests."""

    num_cancelled: int = 0
    num_stuck: int = 0
    num_refused: int = 0
    end_s: float = END_S  # in which a request that nobody cancels must end

    async def hurry(self, work: Awaitable[object], after_s: float | None) -> None:
        """Cancels the work after a time; without one, it must end by itself."""
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait([task], timeout=self.end_s if after_s is None else after_s)
        self.num_stuck += not done and after_s is None
        self.num_cancelled += not done and after_s is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            try:
                await task
            except OverloadedError:
                self.num_refused += 1


async def ends(task: "asyncio.Task[str]", within_s: float) -> str | None:
    """How a request has ended: its text, or the error's; None if it has not."""
    done, _ = await asyncio.wait([task], timeout=within_s)
    if not done:
        task.cancel()
        return None
    error = task.exception()
    if error is not None and not isinstance(error, MidtokenError):
        raise error
    return task.result() if error is None else f"{type(error).__name__}: {error}"
