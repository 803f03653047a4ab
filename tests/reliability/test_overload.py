"""More is asked than the server can do: it completes as much as it can, and refuses the rest at once.

So many editors type that their keys come at 1.3, 3 and 10 times the rate at which a closed loop is answered, and cancel
as they type on. Patient clients, who cancel nothing, then fill the queue, so that requests are refused.
"""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from benchmarks.measures.load_editors import Outcome, PhaseResult, TimedRequest, run_editors
from benchmarks.measures.report import find_percentile
from inference.protocol.completion import Chunks, CompletionRequest
from tests.support.chaos_editor import build_texts
from tests.support.reliability import Reliability, find_growth
from tests.support.servers import EMBEDDED, TRITON, RunningServer, make_slow, needs_triton, run_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

_GAP_S = 0.2  # between two keys, the median; the spread is that of `benchmarks.corpora.typist`
_GAP_SPREAD = 0.45
_NUM_KEYS = 200


def build_scripts(num_editors: int, num_keys: int = _NUM_KEYS) -> list[list[TimedRequest]]:
    """A script for each editor, with a text before that is its own."""
    return [[*_build_script(f"editor {number}", number, num_keys)] for number in range(num_editors)]


def _build_script(name: str, seed: int, num_keys: int) -> Iterator[TimedRequest]:
    rng, texts = random.Random(seed), build_texts()
    before = "".join(f"def {rng.choice('abcdefgh')}{number}(value):\n    return value\n\n\n" for number in range(20))
    for _ in range(num_keys):
        request = CompletionRequest(
            before + rng.choice(texts), max_tokens=32, chunks=Chunks.LINES, tenant=name, document=name
        )
        yield TimedRequest(rng.lognormvariate(math.log(_GAP_S), _GAP_SPREAD), request)


_LOADS = {"1_3": 1.3, "3": 3.0, "10": 10.0}
_SEQUENCE_S = 0.02  # so slow that the model has too much to do, and not the machine with all of its editors


@asynccontextmanager
async def watch_memory(server: RunningServer) -> AsyncIterator[list[float]]:
    """Samples what all processes of a server hold together, in MiB, inside the block."""
    samples = list[float]()

    async def sample() -> None:
        while True:
            samples.append(await asyncio.to_thread(_measure_memory_mib, server))
            await asyncio.sleep(0.5)

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
    return num_bytes / 2**20


@pytest.mark.parametrize("runtime", [pytest.param(TRITON, marks=[needs_triton, pytest.mark.full]), EMBEDDED])
async def test_an_overloaded_server_completes_what_it_can(
    runtime: str, tmp_path: Path, reliability: Reliability
) -> None:
    scripts, duration_s = build_scripts(reliability.choose(4, 48)), reliability.choose(1.5, 30.0)
    opened = dict[str, PhaseResult]()
    with run_server(make_slow(tmp_path, sequence_s=_SEQUENCE_S), tmp_path / "state", runtime=runtime) as server:
        async with run_editors(server.url, scripts) as editors:
            closed = await editors.play("closed loop", duration_s)
            for name, load in _LOADS.items():
                async with watch_memory(server) as memory_mib:  # at last of the greatest load, when all are known
                    opened[name] = await editors.play(name, duration_s, load * closed.completed_per_s)
            patient = await editors.play("patient", duration_s / 2, 3 * closed.completed_per_s, is_patient=True)
    phases = [closed, *opened.values(), patient]
    figures = {f"overload_completed_{name}": opened[name].completed_per_s / closed.completed_per_s for name in opened}
    figures |= {
        "overload_refused_ms_p99": find_percentile([ms for phase in phases for ms in phase.refused_ms], 99) or 0.0,
        "overload_growth_mib": find_growth(memory_mib),
        "overload_failed": sum(phase.count(Outcome.FAILED) for phase in phases),
    }
    rows = [{"load": phase.name, "server": server.runtime_name, **phase.build_row()} for phase in phases]
    reliability.record_of(server.runtime_name, "overload", figures, rows)
    assert figures["overload_failed"] == 0
    assert closed.count(Outcome.COMPLETED), "on a slow machine, later phases of the short form may have none"
