"""The thread that answers questions to the character-level model, one after the other, in the order they came.

A question is stopped by its deadline, by its client, or when the server stops. The worker checks this before each
forward pass of the model, for the running question and for those that wait. One that is stopped while it waits is never
begun. Each question ends in one call of its sink: `send` or `fail`.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from inference.characters.watched_reader import PassWatch
from inference.errors import MidtokenError, OverloadedError, ServerError, describe_failure, to_public_error
from inference.protocol.characters import CharacterAnswer, CharacterRequest

_log = logging.getLogger(__name__)

_MAX_WAITING = 64
_CANCEL_CHECK_S = 0.02  # asking Triton whether a request was cancelled takes 0.1 ms, and a forward pass may take 2 ms

_CLOSED = "the server is shutting down"


class AnswerSink(Protocol):
    """Where the answer to one question goes."""

    def send(self, answer: CharacterAnswer) -> None:
        """Takes the answer."""
        ...

    def fail(self, error: MidtokenError) -> None:
        """Takes the error that the question ended with."""
        ...

    def is_cancelled(self) -> bool:
        """True once the client has cancelled the question."""
        ...


class Service(Protocol):
    """What answers a question."""

    def answer(self, request: CharacterRequest) -> CharacterAnswer:
        """The answer. Raises MidtokenError."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    request: CharacterRequest
    sink: AnswerSink
    ends_at: float | None  # on the worker's clock; None: it has no deadline


class CharacterWorker:
    """Answers questions on a thread of its own. `submit`, `measure_heartbeat_ms` and `close` are for any thread."""

    def __init__(
        self,
        load_service: Callable[[PassWatch], Service],
        max_waiting: int = _MAX_WAITING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the thread. The service is loaded with the first question; it tells the watch of its passes."""
        self._load_service = load_service
        self._max_waiting = max_waiting
        self._clock = clock
        self._changed = threading.Condition()  # guards all of the following but the service, which the thread owns
        self._waiting: deque[_Question] = deque()
        self._running: _Question | None = None
        self._is_loading = False
        self._is_closed = False
        self._progress_at = clock()
        self._cancel_checked_at = clock()
        self._service: Service | None = None
        self._thread = threading.Thread(target=self._run, name="midtoken-characters", daemon=True)
        self._thread.start()

    def submit(self, request: CharacterRequest, sink: AnswerSink) -> None:
        """Queues the question; its answer or its error goes to `sink`. Raises OverloadedError."""
        ends_at = None if request.deadline_ms is None else self._clock() + request.deadline_ms / 1e3
        with self._changed:
            if self._is_closed:
                raise OverloadedError(_CLOSED)
            if len(self._waiting) >= self._max_waiting:
                raise OverloadedError(f"{self._max_waiting} questions wait already; try again in a moment")
            if self._running is None and not self._waiting:
                self._progress_at = self._clock()  # there was nothing to do before
            self._waiting.append(_Question(request, sink, ends_at))
            self._changed.notify()

    def measure_heartbeat_ms(self) -> float:
        """Milliseconds since a forward pass, a question or the load of the model was last finished; 0 if idle.

        0 while the model is loaded, too: how long that takes depends on the disk and on the model's size.
        """
        with self._changed:
            is_idle = self._running is None and not self._waiting
            return 0.0 if is_idle or self._is_loading else 1e3 * (self._clock() - self._progress_at)

    def close(self) -> None:
        """Fails the questions that wait, stops the one that runs before its next forward pass, and ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def begin_pass(self) -> None:
        """Ends the waiting questions that have to end. Raises ServerError where the running one has to."""
        now = self._clock()
        is_cancel_checked = now - self._cancel_checked_at >= _CANCEL_CHECK_S
        if is_cancel_checked:
            self._cancel_checked_at = now
            self._drop_stopped()
        assert self._running is not None, "passes are made for a question"
        reason = self._find_stop_reason(self._running, now, is_cancel_checked)
        if reason is not None:
            raise ServerError(reason)  # in no variable here, or the question's states would live as long as a cycle

    def end_pass(self) -> None:
        """Counts as progress."""
        with self._changed:
            self._progress_at = self._clock()

    def _run(self) -> None:
        while (question := self._take()) is not None:
            self._answer(question)
            del question  # while the thread waits for the next one, nothing holds on to this one
        for question in self._waiting:
            _fail(question.sink, ServerError(_CLOSED))

    def _take(self) -> _Question | None:
        """The next question, once there is one; None once the worker is closed."""
        with self._changed:
            self._running = None
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            self._running = self._waiting.popleft()
            self._progress_at = self._clock()
            return self._running

    def _answer(self, question: _Question) -> None:
        try:
            reason = self._find_stop_reason(question, self._clock())
            if reason is not None:
                raise ServerError(reason)
            question.sink.send(self._find_service().answer(question.request))
        except Exception as error:  # the thread outlives whatever one question runs into
            _fail(question.sink, to_public_error(error, _log.error))

    def _find_service(self) -> Service:
        if self._service is None:
            self._set_loading(True)
            try:
                self._service = self._load_service(self)
            finally:
                self._set_loading(False)
        return self._service

    def _set_loading(self, is_loading: bool) -> None:
        with self._changed:
            self._is_loading = is_loading
            self._progress_at = self._clock()

    def _drop_stopped(self) -> None:
        """Fails the waiting questions that were cancelled or are late."""
        with self._changed:
            waiting = tuple(self._waiting)
        for question in waiting:
            reason = self._find_stop_reason(question, self._clock())
            if reason is not None:
                with self._changed:
                    self._waiting.remove(question)
                _fail(question.sink, ServerError(reason))

    def _find_stop_reason(self, question: _Question, now: float, is_cancel_checked: bool = True) -> str | None:
        """Why the question has to end without an answer; None where it may go on."""
        if self._is_closed:
            return _CLOSED
        if is_cancel_checked and _is_cancelled(question.sink):
            return "the request was cancelled"
        if question.ends_at is not None and now >= question.ends_at:
            return f"the request was not answered within its deadline_ms of {question.request.deadline_ms}"
        return None


# A sink is somebody else's code: whatever it raises ends its own question and no other.
def _is_cancelled(sink: AnswerSink) -> bool:
    try:
        return sink.is_cancelled()
    except Exception as error:
        _log.error("a sink did not say whether it was cancelled: %s", describe_failure(error))
        return True


def _fail(sink: AnswerSink, error: MidtokenError) -> None:
    try:
        sink.fail(error)
    except Exception as raised:
        _log.error("a sink did not take its failure: %s", describe_failure(raised))
