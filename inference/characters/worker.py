"""The thread that answers requests to the character-level model, one at a time, first come, first served.

A request is stopped by its deadline, by its client, or by the server's shutdown. The worker checks this when its turn
comes, and before each forward pass of the model. Each request ends in one call of its sink: `send` or `fail`.
"""

import logging
import queue
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
    as_failure,
    refuse,
    tell_failure,
    to_public_error,
)
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.heartbeat import Heartbeat

_log = logging.getLogger(__name__)

_MAX_WAITING = 64
_CLOSED = "the server is shutting down"


class AnswerSink(Protocol):
    """Receives the answer to one request."""

    def send(self, answer: CharacterAnswer) -> None:
        """Receives the answer."""

    def fail(self, error: MidtokenError) -> None:
        """Receives the error that ended the request."""

    def is_cancelled(self) -> bool:
        """True once the client has cancelled the request. Called before each forward pass."""


Answerer = Callable[[CharacterRequest], CharacterAnswer]  # raises MidtokenError


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedRequest:
    request: CharacterRequest
    sink: AnswerSink
    ends_at: float | None  # on the worker's clock; None: no deadline

    def check(self, now: float, is_closed: bool) -> None:
        """Raises ServerError if it must end without an answer."""
        late = f"the request was not answered within its deadline_ms of {self.request.deadline_ms}"
        is_late = self.ends_at is not None and now >= self.ends_at
        refuse(ServerError, {_CLOSED: is_closed, "the request was cancelled": self.sink.is_cancelled(), late: is_late})


class CharacterWorker:
    """Answers requests on a separate thread. `submit`, `measure_heartbeat_ms` and `close` are thread-safe."""

    def __init__(
        self,
        load: Callable[[PassWatch], Answerer],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the thread. The first request loads what answers, which enters the given watch for each pass."""
        self._load = load
        self._clock = clock
        self._waiting: queue.Queue[_QueuedRequest | None] = queue.Queue(_MAX_WAITING)  # None: the worker is closed
        self._is_closed = False
        self._heartbeat = Heartbeat(clock)
        self._running: _QueuedRequest | None = None  # this and what follows, the thread owns
        self._answerer: Answerer | None = None
        self._thread = threading.Thread(target=self._run, name="midtoken-characters", daemon=True)
        self._thread.start()

    def submit(self, request: CharacterRequest, sink: AnswerSink) -> None:
        """Queues the request; its answer or its error goes to `sink`. Raises OverloadedError."""
        ends_at = None if request.deadline_ms is None else self._clock() + request.deadline_ms / 1e3
        if self._is_closed:
            raise OverloadedError(_CLOSED)
        try:
            self._waiting.put_nowait(_QueuedRequest(request, sink, ends_at))
        except queue.Full:
            raise OverloadedError(f"{_MAX_WAITING} requests wait already; try again in a moment") from None

    def measure_heartbeat_ms(self) -> float:
        """Milliseconds since a forward pass, a request or the load of the model last finished; 0 while idle.

        Also 0 while the model is loaded, because the time for that depends on the disk and on the model's size.
        """
        return self._heartbeat.measure_ms()

    def close(self) -> None:
        """Stops the running request before its next forward pass, fails the waiting ones, and stops the thread.

        The server passes no request on any more.
        """
        self._is_closed = True
        if self._thread.is_alive():
            self._waiting.put(None)
        self._thread.join()

    @contextmanager
    def watch_pass(self) -> Iterator[None]:
        """Entered for a pass. Raises ServerError if the running request must stop."""
        assert self._running is not None, "a pass belongs to a running request"
        self._running.check(self._clock(), self._is_closed)
        yield
        self._heartbeat.beat()

    def _run(self) -> None:
        while (queued := self._take()) is not None:
            try:
                queued.check(self._clock(), self._is_closed)
                queued.sink.send(self._ensure_answerer()(queued.request))
            except BaseException as error:  # an error of one request must not end the thread
                tell_failure(queued.sink.fail, to_public_error(as_failure(error), _log.error), _log.error)
            del queued  # so that it is freed while the thread waits for the next one

    def _take(self) -> _QueuedRequest | None:
        """Waits for the next request. Returns None once the worker is closed."""
        self._running = None
        self._heartbeat.mark_idle()
        self._running = self._waiting.get()
        self._heartbeat.beat()
        return self._running

    def _ensure_answerer(self) -> Answerer:
        if self._answerer is None:
            self._heartbeat.mark_idle()
            self._answerer = self._load(self.watch_pass)
            self._heartbeat.beat()
        return self._answerer
