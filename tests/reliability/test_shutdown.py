"""A server is stopped while it answers many requests: each is finished or told, and nothing remains of it."""

import asyncio
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from inference.client.client import Client
from inference.errors import MidtokenError, OverloadedError
from inference.protocol.completion import CompletionRequest, Extent
from tests.support.reliability import Reliability
from tests.support.servers import EMBEDDED, TRITON, RunningServer, make_slow, needs_triton, run_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

_NUM_STREAMS = 50
_PASS_S = 0.3  # so that no answer ends by itself soon
_KILL_S = 10.0  # after which Docker kills what it stops; tritonserver waits for its streams longer than it says
_WITHIN_S = 30.0


async def _read(client: Client, number: int) -> str:
    """How a request has ended: its text, or the error's."""
    request = CompletionRequest(f"x{number} = ", max_tokens=200, extent=Extent.UNLIMITED)
    try:
        return "".join([chunk.text async for chunk in client.stream(request)])
    except MidtokenError as error:
        return f"{type(error).__name__}: {error}"


def _find_orphans(server: RunningServer, regions: Sequence[Path]) -> list[str]:
    """Processes, shared memory and sockets that are left of a server that has ended."""
    processes = [f"process {pid}: {line[:80]}" for pid, line in server.find_processes().items()]
    sockets = [path for path in server.state_dir.rglob("*") if path.is_socket()]
    return processes + [f"file {path}" for path in (*regions, *sockets) if path.exists()]


@pytest.mark.parametrize(
    "runtime", [pytest.param(TRITON, marks=needs_triton), pytest.param(EMBEDDED, marks=pytest.mark.full)]
)
async def test_each_stream_is_finished_or_told_and_nothing_remains(
    runtime: str, tmp_path: Path, reliability: Reliability
) -> None:
    with run_server(make_slow(tmp_path, pass_s=_PASS_S), tmp_path / "state", runtime=runtime) as server:
        async with Client(server.url) as client:
            tasks = [asyncio.create_task(_read(client, number)) for number in range(_NUM_STREAMS)]
            await asyncio.sleep(1.0)
            assert not any(task.done() for task in tasks), "they were to run longer"
            regions, stopped_at = server.find_regions(), time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            asyncio.get_running_loop().call_later(_KILL_S, server.process.kill)
            ended, untold = await asyncio.wait(tasks, timeout=_WITHIN_S)
            ended_s = time.monotonic() - stopped_at
            for each in untold:
                each.cancel()
        await asyncio.to_thread(server.process.wait, 60)
        orphans = _find_orphans(server, regions)
    found = [each.result() for each in ended]
    figures = {
        "shutdown_untold": len(untold),
        "shutdown_s": ended_s,
        "shutdown_orphans": len(orphans),
        "shutdown_finished": sum("Error: " not in each for each in found),
    }
    reliability.record_of(server.runtime_name, "shutdown", figures)
    assert (orphans, untold) == ([], set())
    assert OverloadedError.__name__ not in str(found)
