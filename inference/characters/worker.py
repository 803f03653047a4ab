"""The thread that answers requests to the character-level model, one at a time, first come, first served.

A request is stopped by its deadline, by its client, or by the server's shutdown. The worker checks this before each
forward pass of the model, for the running request and for the waiting ones. A request that is stopped while it waits is
never started. Each request ends in one call of its sink: `send` or `fail`.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from inference.characters.token_string import PassWatch
from inference.errors import MidtokenError, OverloadedError, ServerError, describe_failure, to_public_error
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.heartbeat import Heartbeat

_log = logging.getLogger(__name__)

_MAX_WAITING = 64
_CANCEL_CHECK_S = 0.02  # asking Triton whether a request was cancelled takes 0.1 ms, and a forward pass may take 2 ms

_CLOSED = "the server is shutting down"


class AnswerSink(Protocol):
    """Receives the answer to one request."""

    def send(self, answer: CharacterAnswer) -> None:
        """Receives the answer."""

    def fail(self, error: MidtokenError) -> None:
        """Receives the error that ended the request."""

    def is_cancelled(self) -> bool:
        """True once the client has cancelled the request."""


Answerer = Callable[[CharacterRequest], CharacterAnswer]  # raises MidtokenError


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedRequest:
    request: CharacterRequest
    sink: AnswerSink
    ends_at: float | None  # on the worker's clock; None: no deadline


class CharacterWorker:
    """Answers requests on a separate thread. `submit`, `measure_heartbeat_ms` and `close` are thread-safe."""

    def __init__(
        self,
        load: Callable[[PassWatch], Answerer],
        max_waiting: int = _MAX_WAITING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the thread. The first request loads what answers, which enters the given watch for each pass."""
        self._load = load
        self._max_waiting = max_waiting
        self._clock = clock
        self._changed = threading.Condition()  # guards the attributes below down to `_is_closed`
        self._waiting: deque[_QueuedRequest] = deque()
        self._is_closed = False
        self._heartbeat = Heartbeat(clock)
        self._running: _QueuedRequest | None = None  # this and what follows, the thread owns
        self._cancel_checked_at = clock()
        self._answerer: Answerer | None = None
        self._thread = threading.Thread(target=self._run, name="midtoken-characters", daemon=True)
        self._thread.start()

    def submit(self, request: CharacterRequest, sink: AnswerSink) -> None:
        """Queues the request; its answer or its error goes to `sink`. Raises OverloadedError."""
        ends_at = None if request.deadline_ms is None else self._clock() + request.deadline_ms / 1e3
        with self._changed:
            if self._is_closed:
                raise OverloadedError(_CLOSED)
            if len(self._waiting) >= self._max_waiting:
                raise OverloadedError(f"{self._max_waiting} requests wait already; try again in a moment")
            self._waiting.append(_QueuedRequest(request, sink, ends_at))
            self._changed.notify()

    def measure_heartbeat_ms(self) -> float:
        """Milliseconds since a forward pass, a request or the load of the model last finished; 0 while idle.

        Also 0 while the model is loaded, because the time for that depends on the disk and on the model's size.
        """
        return self._heartbeat.measure_ms()

    def close(self) -> None:
        """Fails the waiting requests, stops the running one before its next forward pass, and stops the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    @contextmanager
    def watch_pass(self) -> Iterator[None]:
        """Entered for a pass: fails the waiting requests that must stop. Raises ServerError if the running one must."""
        now = self._clock()
        is_cancel_checked = now - self._cancel_checked_at >= _CANCEL_CHECK_S
        if is_cancel_checked:
            self._cancel_checked_at = now
            self._drop_stopped()
        assert self._running is not None, "a pass belongs to a running request"
        reason = self._find_stop_reason(self._running, now, is_cancel_checked)
        if reason is not None:
            raise ServerError(reason)  # in a variable it would be a reference cycle that keeps the states alive
        yield
        self._heartbeat.beat()

    def _run(self) -> None:
        while (queued := self._take()) is not None:
            self._answer(queued)
            del queued  # so that it is freed while the thread waits for the next one
        for queued in self._waiting:
            _fail(queued.sink, ServerError(_CLOSED))

    def _take(self) -> _QueuedRequest | None:
        """Waits for the next request. Returns None once the worker is closed."""
        with self._changed:
            self._running = None
            self._heartbeat.mark_idle()
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            self._running = self._waiting.popleft()
            self._heartbeat.beat()
            return self._running

    def _answer(self, queued: _QueuedRequest) -> None:
        try:
            reason = self._find_stop_reason(queued, self._clock())
            if reason is not None:
                raise ServerError(reason)
            queued.sink.send(self._find_answerer()(queued.request))
        except Exception as error:  # an error of one request must not end the thread
            _fail(queued.sink, to_public_error(error, _log.error))

    def _find_answerer(self) -> Answerer:
        if self._answerer is None:
            self._heartbeat.mark_idle()
            self._answerer = self._load(self.watch_pass)
            self._heartbeat.beat()
        return self._answerer

    def _drop_stopped(self) -> None:
        """Fails the waiting requests that were cancelled or are past their deadline."""
        with self._changed:
            waiting = tuple(self._waiting)
        for queued in waiting:
            reason = self._find_stop_reason(queued, self._clock())
            if reason is not None:
                with self._changed:
                    self._waiting.remove(queued)
                _fail(queued.sink, ServerError(reason))

    def _find_stop_reason(self, queued: _QueuedRequest, now: float, is_cancel_checked: bool = True) -> str | None:
        """Why the request must end without an answer; None if it may continue."""
        if self._is_closed:
            return _CLOSED
        if is_cancel_checked and _is_cancelled(queued.sink):
            return "the request was cancelled"
        if queued.ends_at is not None and now >= queued.ends_at:
            return f"the request was not answered within its deadline_ms of {queued.request.deadline_ms}"
        return None


# An exception raised by a sink must affect only its own request.
def _is_cancelled(sink: AnswerSink) -> bool:
    try:
        return sink.is_cancelled()
    except Exception as error:
        _log.error("a sink raised in is_cancelled(): %s", describe_failure(error))
        return True


def _fail(sink: AnswerSink, error: MidtokenError) -> None:
    try:
        sink.fail(error)
    except Exception as raised:
        _log.error("a sink raised in fail(): %s", describe_failure(raised))
