"""The worker with a scripted service: order, deadlines, cancels, heartbeat, and exactly one end for each question."""

import logging
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from inference.characters.token_string import PassWatch
from inference.characters.worker import Answerer, CharacterWorker
from inference.errors import ModelError, OverloadedError
from inference.protocol.characters import CharacterAnswer, CharacterRequest, Generated
from tests.support.sinks import AnswerSink, wait_until_soon


class _Service:
    """A service that does what the text says.

    `run` makes forward passes until the worker stops it. `hang` is one forward pass that lasts until `release`.
    `raise` fails. Any other text is returned.
    """

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.num_loads = 0
        self.has_passed = threading.Event()
        self.may_load = threading.Event()
        self.may_load.set()
        self.release = threading.Event()
        self.num_failed_loads = 0

    def load(self, watch: PassWatch) -> Answerer:
        self.num_loads += 1
        assert self.may_load.wait(30)
        if self.num_loads <= self.num_failed_loads:
            raise ModelError("no weights")
        self._watch = watch
        return self._answer

    def _answer(self, request: CharacterRequest) -> CharacterAnswer:
        self.begun.append(request.text)
        while request.text == b"run":
            with self._watch():
                time.sleep(0.001)
            self.has_passed.set()
        if request.text == b"hang":
            with self._watch():
                self.has_passed.set()
                assert self.release.wait(30)
        if request.text == b"raise":
            raise RuntimeError(request.context)
        return Generated(request.text)


@pytest.fixture
def clock() -> SimpleNamespace:
    """A clock that changes only when the test sets it."""
    return SimpleNamespace(now=100.0)


@pytest.fixture
def service() -> _Service:
    return _Service()


@pytest.fixture
def worker(service: _Service, clock: SimpleNamespace) -> Iterator[CharacterWorker]:
    worker = CharacterWorker(service.load, clock=lambda: clock.now)
    yield worker
    service.release.set()
    worker.close()


def _submit(worker: CharacterWorker, text: bytes, deadline_ms: int | None = None) -> AnswerSink:
    sink = AnswerSink()
    worker.submit(CharacterRequest(text, deadline_ms=deadline_ms), sink)
    return sink


def _submit_running(worker: CharacterWorker, service: _Service, text: bytes = b"run") -> AnswerSink:
    """Submits a question and returns when it is running."""
    sink = _submit(worker, text)
    assert service.has_passed.wait(30)
    return sink


def test_questions_are_answered_in_order_of_arrival(worker: CharacterWorker, service: _Service) -> None:
    running = _submit_running(worker, service)
    sinks = [_submit(worker, text) for text in (b"c", b"a", b"b")]
    running.cancelled = True

    assert [sink.wait().answers for sink in sinks] == [[Generated(text)] for text in (b"c", b"a", b"b")]
    assert running.error == "the request was cancelled"
    assert service.begun == [b"run", b"c", b"a", b"b"]


def test_a_running_question_ends_at_its_deadline(
    worker: CharacterWorker, service: _Service, clock: SimpleNamespace
) -> None:
    sink = _submit(worker, b"run", deadline_ms=500)
    assert service.has_passed.wait(30)
    assert not sink.errors

    clock.now += 0.6

    assert sink.error == "the request was not answered within its deadline_ms of 500"


@pytest.mark.parametrize(
    ("is_late", "error"),
    [(False, "the request was cancelled"), (True, "the request was not answered within its deadline_ms of 500")],
)
def test_a_waiting_question_that_must_stop_never_starts(
    is_late: bool, error: str, worker: CharacterWorker, service: _Service, clock: SimpleNamespace
) -> None:
    running, waiting = _submit_running(worker, service), _submit(worker, b"next", deadline_ms=500)

    clock.now += 0.6 * is_late
    waiting.cancelled = not is_late

    running.cancelled = True
    assert waiting.error == error
    assert _submit(worker, b"last").wait().answers
    assert service.begun == [b"run", b"last"]


def test_an_answer_that_cannot_be_sent_becomes_an_error(worker: CharacterWorker) -> None:
    sink = AnswerSink()
    sink.raises_on_send = True

    worker.submit(CharacterRequest(b"a"), sink)

    assert sink.error == "the server failed on this request (ValueError); its log says where"


def test_the_log_has_the_location_of_a_failure_and_no_text(
    worker: CharacterWorker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        sink = AnswerSink()
        worker.submit(CharacterRequest(b"raise", b"secret"), sink)
        assert sink.error == "the server failed on this request (RuntimeError); its log says where"

    assert "RuntimeError" in caplog.text
    assert "test_worker.py:" in caplog.text
    assert "secret" not in caplog.text


def test_closing_ends_the_running_and_the_waiting_questions(worker: CharacterWorker, service: _Service) -> None:
    sinks = [_submit_running(worker, service), _submit(worker, b"next"), _submit(worker, b"last")]

    worker.close()

    assert [sink.error for sink in sinks] == ["the server is shutting down"] * 3
    with pytest.raises(OverloadedError, match="shutting down"):
        _submit(worker, b"late")


def test_the_model_is_loaded_with_the_first_question_and_again_only_if_that_failed(
    worker: CharacterWorker, service: _Service
) -> None:
    service.num_failed_loads = 1

    assert service.num_loads == 0
    assert _submit(worker, b"a").error == "no weights"
    for _ in range(2):
        assert _submit(worker, b"a").wait().answers == [Generated(b"a")]
    assert service.num_loads == 2


def test_loading_the_model_counts_as_progress(
    worker: CharacterWorker, service: _Service, clock: SimpleNamespace
) -> None:
    service.may_load.clear()
    first = _submit(worker, b"hang")
    wait_until_soon(lambda: service.num_loads == 1)

    clock.now += 60

    assert worker.heartbeat.measure_ms() == 0
    service.may_load.set()
    assert service.has_passed.wait(30)
    assert worker.heartbeat.measure_ms() == 0
    clock.now += 1
    assert worker.heartbeat.measure_ms() == pytest.approx(1000)
    service.release.set()
    first.wait()


def test_a_full_queue_takes_no_further_question(worker: CharacterWorker, service: _Service) -> None:
    questions = [_submit_running(worker, service), *(_submit(worker, b"run") for _ in range(64))]
    with pytest.raises(OverloadedError, match="64 requests wait already"):
        _submit(worker, b"run")
    for each in questions:
        each.cancelled = True
