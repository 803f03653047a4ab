"""Simulated editors of a load: each sends recorded requests at a person's pace, and cancels as editors do.

A greater load is more editors, not faster ones: a key that follows after 40 ms leaves no server the time to complete
anything. Each editor has a connection of its own.
"""

import asyncio
import contextlib
import dataclasses
import enum
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from statistics import mean

from benchmarks.measures.report import Row, find_percentile
from inference.client.client import Client
from inference.errors import MidtokenError, OverloadedError
from inference.protocol.completion import CompletionRequest

_LEAD_S = 2.0  # until a phase begins, in which cancelled requests end
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


async def _play(
    client: Client, requests: Iterator[TimedRequest], duration_s: float, gap_scale: float | None, is_patient: bool
) -> list[Attempt]:
    """Plays one phase. Requests that have not ended at its end are cancelled, and are in no attempt."""
    sent: list[tuple[Attempt, asyncio.Task[None]]] = []
    with contextlib.suppress(TimeoutError):  # the phase is over
        async with asyncio.timeout(duration_s):
            await _send(client, requests, gap_scale, is_patient, sent)
    attempts = [attempt for attempt, _ in sent if attempt.outcome is not None]
    for _, task in sent:
        task.cancel()
    await asyncio.gather(*(task for _, task in sent), return_exceptions=True)
    return attempts


async def _send(
    client: Client,
    requests: Iterator[TimedRequest],
    gap_scale: float | None,
    is_patient: bool,
    sent: list[tuple[Attempt, asyncio.Task[None]]],
) -> None:
    """Sends each request at its time, or without a scale for the recorded gaps when the one before has ended.

    Then the one before is cancelled if it has not ended. A patient editor cancels nothing, and names no document.
    """
    due_at = time.perf_counter()
    for recorded in requests:
        request = recorded.request
        if gap_scale is not None:
            due_at += gap_scale * recorded.gap_s
            await asyncio.sleep(due_at - time.perf_counter())
        if is_patient:
            request = dataclasses.replace(request, document="")
        elif sent:
            sent[-1][0].end(Outcome.SUPERSEDED)
            sent[-1][1].cancel()
        attempt = Attempt(time.perf_counter())
        sent.append((attempt, asyncio.create_task(_complete(client, request, attempt))))
        if gap_scale is None:
            await sent[-1][1]


async def _complete(client: Client, request: CompletionRequest, attempt: Attempt) -> None:
    reason = ""
    try:
        async with aclosing(client.stream(request)) as chunks:
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


class LoadEditors:
    """Use `run_editors`."""

    def __init__(self, clients: Sequence[Client], scripts: Sequence[Sequence[TimedRequest]]) -> None:
        # A phase goes on in the script where the one before ended.
        self._editors = [(client, cycle(script)) for client, script in zip(clients, scripts, strict=True)]
        self._mean_gap_s = mean(each.gap_s for script in scripts for each in script)

    async def play(
        self, name: str, duration_s: float, keys_per_s: float | None = None, is_patient: bool = False
    ) -> PhaseResult:
        """As many editors as together press so many keys a second. Patient ones let all their requests end.

        If that are more than there are, all of them type faster. Without a number of keys, some editors send their next
        request when the last one is answered.
        """
        wanted = _NUM_IN_CLOSED_LOOP if keys_per_s is None else max(1, round(keys_per_s * self._mean_gap_s))
        some = self._editors[:wanted]
        gap_scale = None if keys_per_s is None else len(some) / (keys_per_s * self._mean_gap_s)
        await asyncio.sleep(_LEAD_S)
        played = (_play(client, requests, duration_s, gap_scale, is_patient) for client, requests in some)
        return PhaseResult(name, duration_s, await asyncio.gather(*played))


@asynccontextmanager
async def run_editors(server: str, scripts: Sequence[Sequence[TimedRequest]]) -> AsyncIterator[LoadEditors]:
    """Connects an editor for each script inside the block. Each has sent a first request."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(server)) for _ in scripts]
        for client, script in zip(clients, scripts, strict=True):
            await _complete(client, script[0].request, Attempt(0.0))
        yield LoadEditors(clients, scripts)
