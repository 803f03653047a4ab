"""Simulated editors of a load: each sends recorded requests at a person's pace, and cancels as editors do.

A greater load is more editors, not faster ones: a key that follows after 40 ms leaves no server the time to complete
anything. A process has several editors, each with a connection of its own.
"""

import asyncio
import contextlib
import dataclasses
import enum
import math
import multiprocessing
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection
from statistics import mean

from benchmarks.measures.report import Row, find_percentile
from inference.client.client import Client
from inference.errors import MidtokenError, OverloadedError
from inference.protocol.completion import CompletionChunk, CompletionRequest

_Stream = Callable[[CompletionRequest], AsyncGenerator[CompletionChunk, None]]

_LEAD_S = 2.0  # until a phase begins, so that all editors begin at once, after the cancelled requests have ended
_NUM_PER_PROCESS = 8
_NUM_IN_CLOSED_LOOP = 16


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
    """What editors do for some time. Times are those of `time.perf_counter`, the same in all processes."""

    num_editors: int  # of the process, the first ones; the others rest
    start_at: float
    duration_s: float
    gap_scale: float | None  # for the recorded gaps; None: a closed loop, the next request follows the answer
    is_patient: bool = False  # of an open loop: nothing is cancelled, and no request supersedes another


@dataclass(slots=True)
class Attempt:
    """One request."""

    sent_at: float
    ended_at: float = 0.0
    outcome: Outcome | None = None  # None while it runs

    def end(self, outcome: Outcome) -> None:
        """Notes how it has ended, if it has not before."""
        if self.outcome is None:
            self.outcome, self.ended_at = outcome, time.perf_counter()


def work(connection: Connection, server: str, scripts: Sequence[Sequence[TimedRequest]]) -> None:
    """A process of editors: sends [] when they are connected, then each one's attempts in each phase, until None."""
    asyncio.run(_work(connection, server, scripts))


async def _work(connection: Connection, server: str, scripts: Sequence[Sequence[TimedRequest]]) -> None:
    recorded = [cycle(script) for script in scripts]  # a phase goes on where the one before ended
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(server)) for _ in scripts]
        for client, requests in zip(clients, recorded, strict=True):
            async for _ in client.stream(next(requests).request):
                pass
        connection.send([])
        while (phase := await asyncio.to_thread(connection.recv)) is not None:
            pairs = [*zip(clients, recorded, strict=True)][: phase.num_editors]
            attempts = await asyncio.gather(*(play(client.stream, requests, phase) for client, requests in pairs))
            connection.send(attempts)


async def play(stream: _Stream, requests: Iterator[TimedRequest], phase: Phase) -> list[Attempt]:
    """Plays one phase. Requests that have not ended at its end are cancelled, and are in no attempt."""
    sent: list[tuple[Attempt, asyncio.Task[None]]] = []
    await asyncio.sleep(phase.start_at - time.perf_counter())
    with contextlib.suppress(TimeoutError):  # the phase is over
        async with asyncio.timeout(phase.start_at + phase.duration_s - time.perf_counter()):
            await _send(stream, requests, phase, sent)
    attempts = [attempt for attempt, _ in sent if attempt.outcome is not None]
    for _, task in sent:
        task.cancel()
    await asyncio.gather(*(task for _, task in sent), return_exceptions=True)
    return attempts


async def _send(
    stream: _Stream, requests: Iterator[TimedRequest], phase: Phase, sent: list[tuple[Attempt, asyncio.Task[None]]]
) -> None:
    """Sends each request when the one before has ended, or at its time.

    Then the one before is cancelled if it has not ended. A patient editor cancels nothing, and names no document.
    """
    due_at = time.perf_counter()
    for recorded in requests:
        request = recorded.request
        if phase.gap_scale is not None:
            due_at += phase.gap_scale * recorded.gap_s
            await asyncio.sleep(due_at - time.perf_counter())
        if phase.is_patient:
            request = dataclasses.replace(request, document="")
        elif sent:
            sent[-1][0].end(Outcome.SUPERSEDED)
            sent[-1][1].cancel()
        attempt = Attempt(time.perf_counter())
        sent.append((attempt, asyncio.create_task(_complete(stream, request, attempt))))
        if phase.gap_scale is None:
            await sent[-1][1]
    await asyncio.wait([sent[-1][1]])


async def _complete(stream: _Stream, request: CompletionRequest, attempt: Attempt) -> None:
    reason = ""
    try:
        async with aclosing(stream(request)) as chunks:
            async for chunk in chunks:
                reason = chunk.finish_reason or ""
        attempt.end(_OUTCOMES.get(reason, Outcome.COMPLETED))
    except OverloadedError:
        attempt.end(Outcome.REFUSED)
    except MidtokenError:
        attempt.end(Outcome.FAILED)


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
            "keys/s of each": len(self.attempts) / len(self.by_editor) / self.duration_s,
            "refused ms, p99": find_percentile(self.refused_ms, 99),
        }


@dataclass(frozen=True, slots=True)
class LoadEditors:
    """Running editors, several in each process. Use `run_editors`."""

    connections: Sequence[Connection]
    num_editors: int
    mean_gap_s: float  # of the recorded keys

    async def play(
        self, name: str, duration_s: float, keys_per_s: float | None = None, is_patient: bool = False
    ) -> PhaseResult:
        """As many editors as together press so many keys a second. Patient ones let all their requests end.

        If that are more than there are, all of them type faster. Without a number of keys, some editors send their next
        request when the last one is answered.
        """
        if keys_per_s is None:
            return await self._play(name, min(_NUM_IN_CLOSED_LOOP, self.num_editors), duration_s, None, is_patient)
        num = min(max(1, round(keys_per_s * self.mean_gap_s)), self.num_editors)
        return await self._play(name, num, duration_s, num / (keys_per_s * self.mean_gap_s), is_patient)

    async def _play(
        self, name: str, num_editors: int, duration_s: float, gap_scale: float | None, is_patient: bool
    ) -> PhaseResult:
        start_at = time.perf_counter() + _LEAD_S
        for index, connection in enumerate(self.connections):
            num = len(range(index, num_editors, len(self.connections)))
            connection.send(Phase(num, start_at, duration_s, gap_scale, is_patient))
        return PhaseResult(name, duration_s, await self.receive())

    async def receive(self) -> list[list[Attempt]]:
        """What each editor sends next."""
        return [each for connection in self.connections for each in await asyncio.to_thread(connection.recv)]


@asynccontextmanager
async def run_editors(server: str, scripts: Sequence[Sequence[TimedRequest]]) -> AsyncIterator[LoadEditors]:
    """Runs an editor for each script inside the block."""
    context = multiprocessing.get_context("spawn")
    num_processes = math.ceil(len(scripts) / _NUM_PER_PROCESS)
    pairs = [context.Pipe() for _ in range(num_processes)]
    processes = [
        context.Process(target=work, args=(theirs, server, scripts[index::num_processes]))
        for index, (_, theirs) in enumerate(pairs)
    ]
    for process in processes:
        process.start()
    gaps_s = [each.gap_s for script in scripts for each in script]
    editors = LoadEditors([ours for ours, _ in pairs], len(scripts), mean(gaps_s))
    try:
        await editors.receive()
        yield editors
    finally:
        for connection in editors.connections:
            connection.send(None)
        for process in processes:
            process.join()
