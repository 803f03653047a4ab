"""Answers requests to the character-level model, in turns.

Each request has a thread, and one of them runs at a time. It gives its turn away before a forward pass, and wherever
else the model looks, once it has had it for a moment. So a request that takes minutes keeps nobody waiting. The next
turn goes to the request that has waited longest. Few are begun, because each keeps the rows of its text.

A request is stopped by its deadline, by its client, or by the server's shutdown. This is looked at in its turns, and
such a request gets the next one. Each request ends in one call of its sink: `send` or `fail`.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from inference.characters.token_string import PassWatch
from inference.errors import (
    MidtokenError,
    OverloadedError,
    ServerError,
    as_failure,
    refuse,
    tell_failure,
    to_public_error,
)
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.heartbeat import Heartbeat

_log = logging.getLogger(__name__)

_MAX_WAITING = 64
_MAX_BEGUN = 4
_TURN_S = 0.05
_DEADLINE_MS = 60_000  # of a request that names none: its client may have gone without a word
_CLOSED = "the server is shutting down"


class AnswerSink(Protocol):
    """Receives the answer to one request."""

    def send(self, answer: CharacterAnswer) -> None:
        """Receives the answer."""

    def fail(self, error: MidtokenError) -> None:
        """Receives the error that ended the request."""

    def is_cancelled(self) -> bool:
        """True once the client has cancelled the request. One thread at a time calls this, and often."""


Answerer = Callable[[CharacterRequest], CharacterAnswer]  # raises MidtokenError


@dataclass(slots=True, eq=False)
class _Task:
    """A request, and the thread that answers it."""

    request: CharacterRequest
    sink: AnswerSink
    deadline_ms: int
    ends_at: float  # on the worker's clock
    last_turn: int = -1  # -1: it is not begun
    thread: threading.Thread = field(init=False)

    def find_end(self, now: float, is_closed: bool) -> str:
        """Why it must end without an answer; empty if it need not."""
        if is_closed:
            return _CLOSED
        if self.sink.is_cancelled():
            return "the request was cancelled"
        late = f"the request was not answered within its deadline_ms of {self.deadline_ms}"
        return late if now >= self.ends_at else ""


class CharacterWorker:
    """Answers requests on threads of its own. `submit`, `measure_heartbeat_ms` and `close` are thread-safe."""

    def __init__(
        self,
        load: Callable[[PassWatch], Answerer],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The first request loads what answers, which enters the given watch for each pass and other long steps."""
        self._load = load
        self._clock = clock
        self._is_closed = False
        self._heartbeat = Heartbeat(clock)
        self._heartbeat.mark_idle()
        self._turns = threading.Condition()  # its lock protects what follows
        self._tasks: list[_Task] = []  # in the order of their arrival
        self._running: _Task | None = None  # whose turn it is
        self._turn_ends_at = 0.0
        self._num_turns = 0
        self._answerer: Answerer | None = None  # this, the thread uses whose turn it is

    def submit(self, request: CharacterRequest, sink: AnswerSink) -> None:
        """Queues the request; its answer or its error goes to `sink`. Raises OverloadedError."""
        deadline_ms = request.deadline_ms or _DEADLINE_MS
        task = _Task(request, sink, deadline_ms, self._clock() + deadline_ms / 1e3)
        task.thread = threading.Thread(target=self._answer, args=(task,), name="midtoken-characters", daemon=True)
        with self._turns:
            refuse(OverloadedError, {_CLOSED: self._is_closed})
            if len(self._tasks) > _MAX_WAITING:
                raise OverloadedError(f"{_MAX_WAITING} requests wait already; try again in a moment", "queue")
            self._tasks.append(task)
            task.thread.start()
            if self._running is None:
                self._begin_turn()

    def measure_heartbeat_ms(self) -> float:
        """Milliseconds since a forward pass, a turn or the load of the model last finished; 0 while idle.

        Also 0 while the model is loaded, because the time for that depends on the disk and on the model's size.
        """
        return self._heartbeat.measure_ms()

    def close(self) -> None:
        """Stops the running request at its next pass, and fails the waiting ones. The server passes no other on."""
        with self._turns:
            self._is_closed = True
            tasks = list(self._tasks)
        for task in tasks:
            task.thread.join()

    @contextmanager
    def watch_pass(self) -> Iterator[None]:
        """Entered for a pass. Raises ServerError if the running request must stop."""
        task = self._running
        assert task is not None, "a pass belongs to a running request"
        if self._clock() >= self._turn_ends_at:
            with self._turns:
                self._begin_turn()
            self._wait_for_turn(task)
        self._check(task)
        yield
        self._heartbeat.beat()

    def _answer(self, task: _Task) -> None:
        """What the thread of a request does."""
        self._wait_for_turn(task)
        try:
            self._check(task)
            task.sink.send(self._ensure_answerer()(task.request))
        except BaseException as error:
            tell_failure(task.sink.fail, to_public_error(as_failure(error), _log.error), _log.error)
        finally:
            with self._turns:
                self._tasks.remove(task)
                self._begin_turn()

    def _wait_for_turn(self, task: _Task) -> None:
        with self._turns:
            self._turns.wait_for(lambda: self._running is task)

    def _check(self, task: _Task) -> None:
        if reason := task.find_end(self._clock(), self._is_closed):
            raise ServerError(reason)

    def _begin_turn(self) -> None:
        """Gives the turn to the next request, which may be the same; to none if there is none."""
        self._running = task = self._choose()
        if task is None:
            self._heartbeat.mark_idle()
            return
        self._num_turns += 1
        task.last_turn = self._num_turns
        self._turn_ends_at = self._clock() + _TURN_S
        self._heartbeat.beat()
        self._turns.notify_all()

    def _choose(self) -> _Task | None:
        now = self._clock()
        if ended := next((task for task in self._tasks if task.find_end(now, self._is_closed)), None):
            return ended
        num_begun = sum(task.last_turn >= 0 for task in self._tasks)
        ready = [task for task in self._tasks if task.last_turn >= 0 or num_begun < _MAX_BEGUN]
        return min(ready, key=lambda task: task.last_turn, default=None)

    def _ensure_answerer(self) -> Answerer:
        if self._answerer is None:
            self._heartbeat.mark_idle()
            begun_at = self._clock()
            self._answerer = self._load(self.watch_pass)
            with self._turns:
                for task in self._tasks:  # who named no deadline has no idea of the load
                    task.ends_at += self._clock() - begun_at if task.request.deadline_ms is None else 0.0
            self._heartbeat.beat()
        return self._answerer
