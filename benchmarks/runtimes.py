"""What a server without Triton costs, beside one with it: start, memory, and the time of a line after a key.

Both run at the same time and are asked in turn, for the rest of the line at cursors inside identifiers of files that
the model was not trained on. The text before the last character was read before, as when somebody types.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.corpora.cuts import draw_cuts
from benchmarks.measures.report import Figures, run_parts
from inference.client.client import Client
from inference.protocol.completion import CompletionRequest, Extent
from models.training.corpus import iter_held_out
from tests.support.servers import EMBEDDED, TRITON, RunningServer, find_real, run_server

_RUNTIMES = {"embedded": EMBEDDED, "triton": TRITON}
_NUM_CURSORS, _NUM_SHORT = 120, 10
_CONTEXT_CHARS = 1_500


def main() -> None:
    run_parts("runtimes", {"both": _measure})


def _measure(is_short: bool) -> Figures:
    cuts = draw_cuts(iter_held_out(), _NUM_SHORT if is_short else _NUM_CURSORS, 0, seed=1)
    prefixes = [cut.prefix[-_CONTEXT_CHARS:] for cut in cuts]
    served = find_real()
    servers, ready_s = {}, {}
    with ExitStack() as stack:
        for name, runtime in _RUNTIMES.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="midtoken-")))
            started_at = time.perf_counter()
            servers[name] = stack.enter_context(run_server(served, folder, runtime=runtime))
            ready_s[name] = time.perf_counter() - started_at
        memory_mb = {name: _measure_memory_mb(server) for name, server in servers.items()}
        times_ms = asyncio.run(_ask_in_turn(servers, prefixes))
    return {
        **{f"ready_s_{name}": seconds for name, seconds in ready_s.items()},
        **{f"memory_MB_{name}": round(megabytes) for name, megabytes in memory_mb.items()},
        **{f"line_ms_{name}": statistics.median(times) for name, times in times_ms.items()},
    }


async def _ask_in_turn(servers: dict[str, RunningServer], prefixes: Iterable[str]) -> dict[str, list[float]]:
    """Returns the times of the lines. Raises AssertionError if the texts differ."""
    times_ms: dict[str, list[float]] = {name: [] for name in servers}
    clients = {name: Client(server.url) for name, server in servers.items()}
    for prefix in prefixes:
        texts = set()
        for name, client in clients.items():
            await _complete(client, prefix[:-1])
            started_at = time.perf_counter()
            texts.add(await _complete(client, prefix))
            times_ms[name].append(1e3 * (time.perf_counter() - started_at))
        assert len(texts) == 1, texts
    for client in clients.values():
        await client.close()
    return times_ms


async def _complete(client: Client, prefix: str) -> str:
    request = CompletionRequest(prefix, max_tokens=20, extent=Extent.SINGLE_LINE)
    return "".join([chunk.text async for chunk in client.stream(request)])


def _measure_memory_mb(server: RunningServer) -> float:
    """The resident memory of all its processes, in 10⁶ bytes."""
    lines = [line for pid in server.find_processes() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return sum(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmRSS:"))


if __name__ == "__main__":
    main()
