"""Simulated editors of a load: each sends recorded requests over a connection of its own, and cancels as editors do.

Each editor is a process, because clients in one process share a connection. All of them play the phases of a load
together.
"""

import asyncio
import contextlib
import dataclasses
import enum
import multiprocessing
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from multiprocessing.connection import Connection

from benchmarks.measures.report import Row, find_percentile
from inference.errors import MidtokenError, OverloadedError
from inference.protocol.completion import CompletionChunk, CompletionRequest
from inference.serving.client import Client

_Stream = Callable[[CompletionRequest], AsyncGenerator[CompletionChunk, None]]

_LEAD_S = 2.0  # until a phase begins, so that all editors begin at once, after the cancelled requests have ended


class Outcome(enum.StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    SUPERSEDED = "superseded"  # by the editor's next key, before it was complete
    REFUSED = "refused"
    CUT = "cut"  # ended at its deadline
    FAILED = "failed"


_OUTCOMES = {  # by the reason for which the server ended it; else it is completed
    "deadline": Outcome.CUT,
    "cancelled": Outcome.SUPERSEDED,
    "superseded": Outcome.SUPERSEDED,  # the server has seen the editor's newer request before the cancel
}


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """A request, and how long after the one before it follows."""

    gap_s: float
    request: CompletionRequest


@dataclass(frozen=True, slots=True)
class Phase:
    """What an editor does for some time. Times are those of `time.perf_counter`, the same in all processes."""

    start_at: float
    duration_s: float
    gap_scale: float | None  # for the recorded gaps; None: a closed loop, the next request follows the answer
    max_requests: int | None = None  # of a closed loop
    is_patient: bool = False  # of an open loop: nothing is cancelled, and no request supersedes another

    @property
    def end_at(self) -> float:
        return self.start_at + self.duration_s


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request that has ended."""

    sent_at: float
    ended_at: float
    outcome: Outcome


def work(connection: Connection, server: str, requests: Sequence[TimedRequest]) -> None:
    """The editor's process: receives phases and sends back their attempts, until it receives None."""
    asyncio.run(_work(connection, server, requests))


async def _work(connection: Connection, server: str, requests: Sequence[TimedRequest]) -> None:
    client = Client(server)
    recorded = cycle(requests)  # a phase goes on where the one before ended
    try:
        while (phase := await asyncio.to_thread(connection.recv)) is not None:
            connection.send(await play(client.stream, recorded, phase))
    finally:
        await client.close()


async def play(stream: _Stream, requests: Iterator[TimedRequest], phase: Phase) -> list[Attempt]:
    """Plays one phase. Requests that have not ended at its end are cancelled, and are in no attempt."""
    editor = _Editor(stream)
    await _sleep_until(phase.start_at)
    with contextlib.suppress(TimeoutError):  # the phase is over
        async with asyncio.timeout(phase.end_at - time.perf_counter()):
            await editor.play(islice(requests, phase.max_requests), phase)
    return await editor.leave()


class _Editor:
    """Sends one request after the other."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self._sent: list[_Running] = []

    async def play(self, requests: Iterator[TimedRequest], phase: Phase) -> None:
        """Sends each request when the one before has ended, or at its time.

        Then the one before is cancelled if it has not ended. A patient editor cancels nothing, and names no document.
        """
        due_at = time.perf_counter()
        for recorded in requests:
            request = recorded.request
            if phase.gap_scale is not None:
                due_at += phase.gap_scale * recorded.gap_s
                await _sleep_until(due_at)
            if phase.is_patient:
                request = dataclasses.replace(request, document="")
            elif self._sent:
                self._sent[-1].supersede()
            self._sent.append(_Running(self._stream, request))
            if phase.gap_scale is None:
                await self._sent[-1].task
        await asyncio.wait([self._sent[-1].task])

    async def leave(self) -> list[Attempt]:
        """Returns what has ended, and cancels the others."""
        attempts = [running.build_attempt() for running in self._sent if running.outcome is not None]
        for running in self._sent:
            running.task.cancel()
        await asyncio.gather(*(running.task for running in self._sent), return_exceptions=True)
        return attempts


class _Running:
    """A request that has been sent."""

    def __init__(self, stream: _Stream, request: CompletionRequest) -> None:
        self.outcome: Outcome | None = None
        self._sent_at = self._ended_at = time.perf_counter()
        self.task = asyncio.create_task(self._run(stream, request))

    def supersede(self) -> None:
        """Cancels it if it has not ended."""
        if self.outcome is None:
            self._end(Outcome.SUPERSEDED)
            self.task.cancel()

    def _end(self, outcome: Outcome) -> None:
        self.outcome, self._ended_at = outcome, time.perf_counter()

    def build_attempt(self) -> Attempt:
        assert self.outcome is not None, "it has ended"
        return Attempt(self._sent_at, self._ended_at, self.outcome)

    async def _run(self, stream: _Stream, request: CompletionRequest) -> None:
        reason = ""
        try:
            async with aclosing(stream(request)) as chunks:
                async for chunk in chunks:
                    reason = chunk.finish_reason or ""
            self._end(_OUTCOMES.get(reason, Outcome.COMPLETED))
        except OverloadedError:
            self._end(Outcome.REFUSED)
        except MidtokenError:
            self._end(Outcome.FAILED)


async def _sleep_until(due_at: float) -> None:
    await asyncio.sleep(due_at - time.perf_counter())


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """The attempts of each editor in one phase."""

    name: str
    duration_s: float
    by_editor: Sequence[Sequence[Attempt]]

    @property
    def attempts(self) -> list[Attempt]:
        """Those of all editors."""
        return [attempt for attempts in self.by_editor for attempt in attempts]

    @property
    def completed_per_s(self) -> float:
        """The goodput."""
        return self.count(Outcome.COMPLETED) / self.duration_s

    @property
    def shares(self) -> list[float]:
        """Each editor's completed requests, relative to its fair share: as many as each other editor has."""
        counts = [sum(each.outcome is Outcome.COMPLETED for each in attempts) for attempts in self.by_editor]
        fair = sum(counts) / len(counts)
        return [count / fair if fair else 0.0 for count in counts]

    @property
    def refused_ms(self) -> list[float]:
        """How long it took to be refused."""
        return [1e3 * (each.ended_at - each.sent_at) for each in self.attempts if each.outcome is Outcome.REFUSED]

    def count(self, outcome: Outcome) -> int:
        """Returns how many requests ended like that."""
        return sum(each.outcome is outcome for each in self.attempts)

    def build_row(self) -> Row:
        """The phase as a row of the printed table."""
        return {
            "load": self.name,
            "editors": len(self.by_editor),
            "requests": len(self.attempts),
            **{str(outcome): self.count(outcome) for outcome in Outcome},
            "completed/s": self.completed_per_s,
            "refused ms, p99": find_percentile(self.refused_ms, 99),
            "least share": min(self.shares),
            "greatest": max(self.shares),
        }


class LoadEditors:
    """Running editors, each in a process of its own."""

    def __init__(self, connections: Sequence[Connection], mean_gap_s: float) -> None:
        """Use `run_editors`."""
        self._connections = connections
        self._mean_gap_s = mean_gap_s  # of the recorded keys

    async def play_closed(self, duration_s: float) -> PhaseResult:
        """All editors send each request when the last one is answered."""
        return await self.play("closed loop", Phase(_find_start(), duration_s, gap_scale=None))

    async def play_open(self, name: str, keys_per_s: float, duration_s: float, is_patient: bool = False) -> PhaseResult:
        """All editors together send so many requests a second on average. Patient ones let all of them end."""
        gap_scale = len(self._connections) / (keys_per_s * self._mean_gap_s)
        return await self.play(name, Phase(_find_start(), duration_s, gap_scale, is_patient=is_patient))

    async def play(self, name: str, phase: Phase) -> PhaseResult:
        """All editors play a phase."""
        for connection in self._connections:
            connection.send(phase)
        by_editor: list[list[Attempt]] = [await asyncio.to_thread(connection.recv) for connection in self._connections]
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
        await editors.play("connecting", Phase(time.perf_counter(), 120.0, None, max_requests=1))
        yield editors
    finally:
        for connection in connections:
            connection.send(None)
        for process in processes:
            process.join()


def _find_start() -> float:
    return time.perf_counter() + _LEAD_S
