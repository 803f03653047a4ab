"""The processes of simulated editors, and the phases that they play together."""

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection

from benchmarks.measures.load.editor import Attempt, Phase, TimedRequest, work
from benchmarks.measures.load.rows import PhaseResult

_LEAD_S = 2.0  # until a phase begins, so that all editors begin at once, after the cancelled requests have ended
_MAX_AT_ONCE_S = 60.0


class LoadEditors:
    """Running editors, each in a process of its own."""

    def __init__(self, connections: Sequence[Connection], mean_gap_s: float) -> None:
        """Use `run_editors`."""
        self._connections = connections
        self._mean_gap_s = mean_gap_s  # of the recorded keys

    def __len__(self) -> int:
        return len(self._connections)

    async def play_closed(self, num_editors: int, duration_s: float) -> PhaseResult:
        """The first editors send each request when the last one is answered."""
        name = f"closed loop, {num_editors}"
        return await self._play(name, num_editors, Phase(_find_start(), duration_s, gap_scale=None))

    async def play_open(self, name: str, keys_per_s: float, duration_s: float, is_patient: bool = False) -> PhaseResult:
        """All editors together send so many requests a second on average. Patient ones let all of them end."""
        gap_scale = len(self) / (keys_per_s * self._mean_gap_s)
        return await self._play(name, len(self), Phase(_find_start(), duration_s, gap_scale, is_patient=is_patient))

    async def play_at_once(self, name: str) -> PhaseResult:
        """All editors send one request at the same moment."""
        phase = Phase(_find_start(), _MAX_AT_ONCE_S, gap_scale=None, max_requests=1)
        result = await self._play(name, len(self), phase)
        last_at = max((attempt.ended_at for attempt in result.attempts), default=phase.end_at)
        return PhaseResult(name, last_at - phase.start_at, result.by_editor)

    async def _play(self, name: str, num_editors: int, phase: Phase) -> PhaseResult:
        playing = self._connections[:num_editors]
        for connection in playing:
            connection.send(phase)
        by_editor: list[list[Attempt]] = [await asyncio.to_thread(connection.recv) for connection in playing]
        return PhaseResult(name, phase.duration_s, by_editor)


@asynccontextmanager
async def run_editors(server: str, scripts: Sequence[Sequence[TimedRequest]]) -> AsyncIterator[LoadEditors]:
    """Runs an editor for each script inside the block."""
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in scripts]
    processes = [
        context.Process(target=work, args=(theirs, server, script))
        for (_, theirs), script in zip(pairs, scripts, strict=True)
    ]
    for process in processes:
        process.start()
    connections = [ours for ours, _ in pairs]
    gaps = [recorded.gap_s for script in scripts for recorded in script]
    try:
        editors = LoadEditors(connections, sum(gaps) / len(gaps))
        await editors._play("connecting", len(editors), Phase(time.perf_counter(), 120.0, None, max_requests=1))
        yield editors
    finally:
        for connection in connections:
            connection.send(None)
        for process in processes:
            process.join()


def _find_start() -> float:
    return time.perf_counter() + _LEAD_S
