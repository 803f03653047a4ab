"""Answers requests to the character-level model, one after the other, in the order of their arrival.

A request is stopped by its deadline, by its client, or by the server's shutdown. Before each forward pass, the running
request and those that wait are checked for that. Each request ends in one call of its sink: `send` or `fail`.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from inference.characters.token_string import PassWatch
from inference.errors import (
    MidtokenError,
    OverloadedError,
    ServerError,
    refuse,
    tell_failure,
    to_public_error,
)
from inference.heartbeat import Heartbeat
from inference.protocol.characters import CharacterAnswer, CharacterRequest

_log = logging.getLogger(__name__)

_MAX_WAITING = 64
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
    """A request that has no answer yet."""

    request: CharacterRequest
    sink: AnswerSink
    ends_at: float  # on the worker's clock

    def find_end(self, now: float, is_closed: bool) -> str:
        """Why it must end without an answer; empty if it need not."""
        if is_closed:
            return _CLOSED
        if self.sink.is_cancelled():
            return "the request was cancelled"
        late = f"the request was not answered within its deadline_ms of {self.request.deadline_ms or _DEADLINE_MS}"
        return late if now >= self.ends_at else ""


class CharacterWorker:
    """Answers requests on a thread of its own. `submit` and `close` are thread-safe."""

    def __init__(self, load: Callable[[PassWatch], Answerer], clock: Callable[[], float] = time.monotonic) -> None:
        """The first request loads what answers, which enters the given watch for each pass and other long steps."""
        self._load = load
        self._clock = clock
        self._answerer: Answerer | None = None
        # Of passes and requests. Idle while the model is loaded: the time for that depends on the disk and its size.
        self.heartbeat = Heartbeat(clock)
        self.heartbeat.mark_idle()
        self._queue = threading.Condition()  # its lock protects what follows
        self._tasks: list[_Task] = []  # in the order of their arrival; the first is the running one
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="midtoken-characters", daemon=True)
        self._thread.start()

    def submit(self, request: CharacterRequest, sink: AnswerSink) -> None:
        """Queues the request; its answer or its error goes to `sink`. Raises OverloadedError."""
        task = _Task(request, sink, self._clock() + (request.deadline_ms or _DEADLINE_MS) / 1e3)
        with self._queue:
            refuse(OverloadedError, {_CLOSED: self._is_closed})
            if len(self._tasks) > _MAX_WAITING:
                raise OverloadedError(f"{_MAX_WAITING} requests wait already; try again in a moment", "queue")
            self._tasks.append(task)
            self._queue.notify()

    def close(self) -> None:
        """Stops the running request at its next pass, and fails the waiting ones. The server passes no other on."""
        with self._queue:
            self._is_closed = True
            self._queue.notify()
        self._thread.join()

    @contextmanager
    def watch_pass(self) -> Iterator[None]:
        """Entered for a pass. Raises ServerError if the running request must stop."""
        self._end_tasks()
        yield
        self.heartbeat.beat()

    def _run(self) -> None:
        while True:
            with self._queue:
                if not self._tasks:
                    self.heartbeat.mark_idle()
                self._queue.wait_for(lambda: self._tasks or self._is_closed)
                if not self._tasks:
                    return
                task = self._tasks[0]
            self.heartbeat.beat()
            try:
                self._end_tasks()
                task.sink.send(self._ensure_answerer()(task.request))
            except BaseException as error:  # others wait, whatever it is
                tell_failure(task.sink.fail, to_public_error(error, _log.error), _log.error)
            with self._queue:
                self._tasks.remove(task)

    def _end_tasks(self) -> None:
        """Fails the waiting requests that must end. Raises ServerError if the running one must."""
        with self._queue:
            tasks, now, is_closed = list(self._tasks), self._clock(), self._is_closed
        running, *waiting = [(task, task.find_end(now, is_closed)) for task in tasks]
        for task, reason in waiting:
            if reason:
                with self._queue:
                    self._tasks.remove(task)
                tell_failure(task.sink.fail, ServerError(reason), _log.error)
        refuse(ServerError, {running[1]: running[1]})

    def _ensure_answerer(self) -> Answerer:
        if self._answerer is None:
            self.heartbeat.mark_idle()
            begun_at = self._clock()
            self._answerer = self._load(self.watch_pass)
            with self._queue:
                for task in self._tasks:  # who named no deadline has no idea of the load
                    task.ends_at += self._clock() - begun_at if task.request.deadline_ms is None else 0.0
            self.heartbeat.beat()
        return self._answerer
