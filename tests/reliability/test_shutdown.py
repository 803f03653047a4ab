"""A server is stopped while it answers many requests: each is finished or told, and nothing remains of it."""

import asyncio
import signal
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest

from inference.client.client import Client
from inference.errors import MidtokenError, OverloadedError
from inference.protocol.completion import CompletionRequest, Extent
from tests.support.reliability import Reliability, describe
from tests.support.servers import EMBEDDED, TRITON, RunningServer, make_slow, needs_triton, run_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

_NUM_STREAMS = 50
_PASS_S = 0.3  # so that no answer ends by itself soon
_KILL_S = 10.0  # after which Docker kills what it stops; tritonserver waits for its streams longer than it says
_WITHIN_S = 30.0


@dataclass(slots=True)
class _Stream:
    """One request, and when its stream has ended."""

    ended_at: float = 0.0

    async def read(self, client: Client, number: int) -> str:
        request = CompletionRequest(f"x{number} = ", max_tokens=200, extent=Extent.UNLIMITED)
        text = ""
        try:
            async with aclosing(client.stream(request)) as chunks:
                async for chunk in chunks:
                    text += chunk.text
        finally:
            self.ended_at = time.monotonic()
        return text


def _find_orphans(server: RunningServer, regions: Sequence[Path]) -> list[str]:
    """Processes, shared memory and sockets that are left of a server that has ended."""
    processes = [f"process {pid}: {line[:80]}" for pid, line in server.find_processes().items()]
    sockets = [path for path in server.state_dir.rglob("*") if path.is_socket()]
    return processes + [f"file {path}" for path in (*regions, *sockets) if path.exists()]


async def _end(task: "asyncio.Task[str]", within_s: float) -> str | None:
    """How a request has ended: its text, or the error's; None if it has not."""
    done, _ = await asyncio.wait([task], timeout=within_s)
    if not done:
        task.cancel()
        return None
    error = task.exception()
    if error is not None and not isinstance(error, MidtokenError):
        raise error
    return task.result() if error is None else f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    "runtime", [pytest.param(TRITON, marks=needs_triton), pytest.param(EMBEDDED, marks=pytest.mark.full)]
)
async def test_each_stream_is_finished_or_told_and_nothing_remains(
    runtime: str, tmp_path: Path, reliability: Reliability
) -> None:
    with run_server(make_slow(tmp_path, pass_s=_PASS_S), tmp_path / "state", runtime=runtime) as server:
        async with Client(server.url) as client:
            streams = [_Stream() for _ in range(_NUM_STREAMS)]
            tasks = [asyncio.create_task(each.read(client, number)) for number, each in enumerate(streams)]
            await asyncio.sleep(1.0)
            assert not any(task.done() for task in tasks), "they were to run longer"
            regions, stopped_at = server.find_regions(), time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            asyncio.get_running_loop().call_later(_KILL_S, server.process.kill)
            found = [await _end(task, max(0.0, stopped_at + _WITHIN_S - time.monotonic())) for task in tasks]
        await asyncio.to_thread(server.process.wait, 60)
        orphans = _find_orphans(server, regions)
    figures = {
        "shutdown_untold": found.count(None),
        "shutdown_s": max(each.ended_at for each in streams) - stopped_at,
        "shutdown_orphans": len(orphans),
        "shutdown_finished": sum(each is not None and "Error: " not in each for each in found),
    }
    reliability.record(
        f"shutdown_{server.runtime_name}", {f"{name}_{server.runtime_name}": figures[name] for name in figures}
    )
    assert not orphans, describe(orphans)
    assert None not in found
    assert OverloadedError.__name__ not in str(found)
