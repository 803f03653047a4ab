"""One simulated editor of a load: it sends recorded requests over a connection of its own, and cancels as editors do.

Each editor is a process, because clients in one process share a connection.
"""

import asyncio
import dataclasses
import enum
import functools
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import cycle, islice
from multiprocessing.connection import Connection

from inference.errors import MidtokenError, OverloadedError
from inference.protocol.completion import CompletionRequest
from inference.serving.completion_client import CompletionClient
from lsp_server.backend import CompletionBackend


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
    first_text_at: float | None
    ended_at: float
    outcome: Outcome


def work(connection: Connection, server: str, requests: Sequence[TimedRequest]) -> None:
    """The editor's process: receives phases and sends back their attempts, until it receives None."""
    asyncio.run(_work(connection, server, requests))


async def _work(connection: Connection, server: str, requests: Sequence[TimedRequest]) -> None:
    client = CompletionClient(server)
    recorded = cycle(requests)  # a phase goes on where the one before ended
    try:
        while (phase := await asyncio.to_thread(connection.recv)) is not None:
            connection.send(await play(client, recorded, phase))
    finally:
        await client.close()


async def play(client: CompletionBackend, requests: Iterator[TimedRequest], phase: Phase) -> list[Attempt]:
    """Plays one phase. Requests that have not ended at its end are cancelled, and are in no attempt."""
    editor = _Editor(client)
    await _sleep_until(phase.start_at)
    try:
        async with asyncio.timeout(phase.end_at - time.perf_counter()):
            if phase.gap_scale is not None and phase.is_patient:
                await editor.play_patiently(requests, phase.gap_scale)
            elif phase.gap_scale is None:
                await editor.play_closed(requests, phase.max_requests)
            else:
                await editor.play_open(requests, phase.gap_scale)
    except TimeoutError:
        pass  # the phase is over
    finally:
        await editor.leave()
    return editor.attempts


class _Editor:
    """Sends one request after the other. At most one is current; the cancelled ones are still ending."""

    def __init__(self, client: CompletionBackend) -> None:
        self.attempts: list[Attempt] = []
        self._client = client
        self._current: _Running | None = None
        self._patient: list[_Running] = []
        self._cancelled: list[asyncio.Task[None]] = []

    async def play_closed(self, requests: Iterator[TimedRequest], max_requests: int | None) -> None:
        """Sends each request when the one before has ended."""
        for recorded in islice(requests, max_requests):
            self._current = _Running(self._client, recorded.request)
            await self._current.task
            self._note_current()

    async def play_patiently(self, requests: Iterator[TimedRequest], gap_scale: float) -> None:
        """Sends each request at its time, for no document, and lets all of them end."""
        due_at = time.perf_counter()
        for recorded in requests:
            due_at += gap_scale * recorded.gap_s
            await _sleep_until(due_at)
            running = _Running(self._client, dataclasses.replace(recorded.request, document=""))
            running.task.add_done_callback(functools.partial(self._note, running))
            self._patient.append(running)

    async def play_open(self, requests: Iterator[TimedRequest], gap_scale: float) -> None:
        """Sends each request at its time, and cancels the one before if it has not ended. Waits for the last one."""
        due_at = time.perf_counter()
        for recorded in requests:
            due_at += gap_scale * recorded.gap_s
            await _sleep_until(due_at)
            self._note_current()
            self._current = _Running(self._client, recorded.request)
        if self._current is not None:
            await self._current.task

    async def leave(self) -> None:
        """Notes the current request if it has ended, and cancels it otherwise, and all others."""
        for running in self._patient:
            if running.outcome is None:
                self._cancel(running)
        if self._current is not None and self._current.outcome is None:
            self._cancel(self._current)
            self._current = None
        self._note_current()
        if self._cancelled:
            await asyncio.wait(self._cancelled)

    def _note_current(self) -> None:
        running, self._current = self._current, None
        if running is None:
            return
        if running.outcome is None:
            self._cancel(running)
            running.end(Outcome.SUPERSEDED)
        self.attempts.append(running.build_attempt())

    def _note(self, running: "_Running", _: object) -> None:
        if running.outcome is not None:
            self.attempts.append(running.build_attempt())

    def _cancel(self, running: "_Running") -> None:
        running.task.cancel()
        self._cancelled.append(running.task)


class _Running:
    """A request that has been sent."""

    def __init__(self, client: CompletionBackend, request: CompletionRequest) -> None:
        self.outcome: Outcome | None = None
        self._sent_at = self._ended_at = time.perf_counter()
        self._first_text_at: float | None = None
        self.task = asyncio.create_task(self._run(client, request))

    def end(self, outcome: Outcome) -> None:
        """Notes how and when it ended."""
        self.outcome, self._ended_at = outcome, time.perf_counter()

    def build_attempt(self) -> Attempt:
        assert self.outcome is not None, "it has ended"
        return Attempt(self._sent_at, self._first_text_at, self._ended_at, self.outcome)

    async def _run(self, client: CompletionBackend, request: CompletionRequest) -> None:
        reason = ""
        try:
            async with aclosing(client.stream(request)) as chunks:
                async for chunk in chunks:
                    if self._first_text_at is None and chunk.text:
                        self._first_text_at = time.perf_counter()
                    reason = chunk.finish_reason or ""
            self.end(_OUTCOMES.get(reason, Outcome.COMPLETED))
        except OverloadedError:
            self.end(Outcome.REFUSED)
        except MidtokenError:
            self.end(Outcome.FAILED)


async def _sleep_until(due_at: float) -> None:
    await asyncio.sleep(due_at - time.perf_counter())
