"""Failures: only the request that causes one fails, and all others are answered. Whether the engine lives is told."""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from inference.engine.engine import Engine
from inference.errors import OverloadedError, ServerError
from inference.model.language_model import Part, SampleRequest, SampleResult
from inference.protocol.completion import CompletionRequest, Healing
from inference.protocol.heartbeat import Heartbeat
from tests.support.engine_bench import (
    UNBOUNDED,
    Clock,
    ScriptedBench,
    assert_soon,
    build_scripted_bench,
    hold_next_pass,
)
from tests.support.scripted_model import CountingCache, raise_full
from tests.support.sinks import CollectingSink, complete, submit
from tests.support.toys import toy_tokenizer

_GOOD = CompletionRequest("x = ", max_tokens=3, extent=UNBOUNDED)
# The scripts know it by its temperature or its first token. All hooks meet it.
_BAD = dataclasses.replace(_GOOD, prefix="bad = ", temperature=0.5, num_candidates=3, explain=True)
_BAD_ID = toy_tokenizer("qwen").encode("bad")[0]
_LONG = CompletionRequest("x = ", max_tokens=400, extent=UNBOUNDED)


def _fail(*_args: Any) -> Any:
    raise RuntimeError("secret")


def _fail_choices(requests: Sequence[SampleRequest]) -> None:
    if any(request.sampling.temperature for request in requests):
        _fail()


def _fail_forwards(parts: Sequence[Part]) -> None:
    if any(_BAD_ID in part.tree.chain_ids for part in parts):
        _fail()


def _fail_cache(cache: CountingCache) -> None:
    if _BAD_ID in cache.token_ids:
        _fail()


def _spoil_choice(request: SampleRequest, result: SampleResult) -> SampleResult:
    """Chooses a token that is not in the vocabulary."""
    choices = tuple(dataclasses.replace(choice, token_id=10**6) for choice in result.choices)
    return dataclasses.replace(result, choices=choices) if request.sampling.temperature else result


def _spoil_explanation(_: SampleRequest, result: SampleResult) -> SampleResult:
    """Explains with a best token that is not in the vocabulary."""
    if result.scores is None:
        return result
    return dataclasses.replace(
        result, scores=dataclasses.replace(result.scores, best_ids=result.scores.best_ids + 10**6)
    )


def _submit_together(bench: ScriptedBench, requests: Sequence[CompletionRequest]) -> list[CollectingSink]:
    """Submits all requests before the first step."""
    hold, before_forward = threading.Event(), bench.model.before_forward

    def wait(steps: Sequence[Part]) -> None:
        assert_soon(hold)
        before_forward(steps)

    bench.model.before_forward = wait
    sinks = [submit(bench.engine, request) for request in requests]
    hold.set()
    for sink in sinks:
        sink.wait_for_end()
    return sinks


@pytest.fixture
def forgetful() -> Iterator[ScriptedBench]:
    """An engine that remembers no sequences."""
    bench = build_scripted_bench(memory_mib=0)
    with closing(bench.engine):
        yield bench


@pytest.mark.parametrize(
    ("hook", "action", "error"),
    [
        ("before_forward", _fail_forwards, "RuntimeError"),
        ("before_choose", _fail_choices, "RuntimeError"),
        ("before_new_random_source", _fail, "RuntimeError"),
        ("before_keep", _fail_cache, "RuntimeError"),
        ("before_reserve", _fail_cache, "RuntimeError"),
        ("before_fork", raise_full, None),
        ("spoil", _spoil_choice, "IndexError"),
        ("spoil", _spoil_explanation, "IndexError"),
    ],
)
def test_a_request_that_fails_fails_alone_without_its_text_in_the_log_and_its_caches_are_released(
    forgetful: ScriptedBench,
    hook: str,
    action: Callable[..., Any],
    error: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error of ours is reported as it is."""
    caplog.set_level(logging.DEBUG)
    expected = complete(forgetful.engine, _GOOD).texts
    setattr(forgetful.model, hook, action)

    first, bad, second = _submit_together(forgetful, [_GOOD, _BAD, _GOOD])

    if error is None:
        assert isinstance(bad.error, OverloadedError)
        assert "no memory left" in str(bad.error)
    else:
        assert str(bad.error) == f"the server failed on this request ({error}); its log says where"
        assert error in caplog.text
    assert "secret" not in caplog.text
    assert first.wait().texts == second.wait().texts == expected
    assert complete(forgetful.engine, dataclasses.replace(_GOOD, healing=Healing.NONE)).text
    forgetful.engine.close()
    bad.error = None  # the traceback of our own refers to the caches
    assert forgetful.model.num_held == 0


def test_a_cache_that_cannot_be_allocated_fails_its_own_request(scripted: ScriptedBench) -> None:
    def fail_the_second() -> None:
        if scripted.model.num_caches_made == 1:
            scripted.model.before_new_cache = lambda: None
            raise_full()

    scripted.model.before_new_cache = fail_the_second
    first, second, third = _submit_together(scripted, [_GOOD] * 3)

    assert isinstance(second.error, OverloadedError)
    assert first.text
    assert complete(scripted.engine, _GOOD).texts == third.texts == first.texts


class _BrokenSink(CollectingSink):
    """Raises from one of its methods."""

    def __init__(self, broken: str) -> None:
        super().__init__()
        self.raised = threading.Event()
        setattr(self, broken, self._break)

    def _break(self, *_args: object) -> None:
        self.raised.set()
        raise RuntimeError("secret")


@pytest.mark.parametrize("broken", ["send", "fail"])
def test_a_sink_that_raises_does_not_affect_other_requests(
    scripted: ScriptedBench, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = _BrokenSink(broken)
    num_tokens = 510 if broken == "fail" else 3  # too many: refused through `fail`
    scripted.engine.submit(dataclasses.replace(_GOOD, max_tokens=num_tokens), sink)
    other = submit(scripted.engine, _GOOD)

    assert other.wait().text
    assert complete(scripted.engine, _GOOD).text
    assert_soon(sink.raised)
    assert isinstance(sink.error, ServerError) == (broken != "fail")
    assert "secret" not in caplog.text


# Whether the engine lives


def _find_refusal(engine: Engine) -> str:
    """Why a full engine refuses a request."""
    with pytest.raises((OverloadedError, ServerError)) as caught:
        submit(engine, _LONG)
    return str(caught.value)


def test_closing_ends_every_accepted_request_and_refuses_more() -> None:
    bench = build_scripted_bench(max_sequences=2, max_waiting=1)
    is_running, hold = hold_next_pass(bench.model)
    sinks = [submit(bench.engine, _LONG)]
    assert_soon(is_running)
    sinks += [submit(bench.engine, _LONG) for _ in range(2)]  # still in the inbox when the thread ends
    closer = threading.Thread(target=bench.engine.close)
    closer.start()
    while "shutting down" not in _find_refusal(bench.engine):
        time.sleep(0.001)
    hold.set()
    closer.join()

    for sink in sinks:
        sink.wait_for_end()
        assert "shutting down" in str(sink.error)
    assert "shutting down" in _find_refusal(bench.engine)


class _Deadly(BaseException):
    """An exception that the engine does not handle."""


def test_if_the_thread_ends_no_request_is_left_waiting_or_accepted(caplog: pytest.LogCaptureFixture) -> None:
    bench = build_scripted_bench(max_sequences=1)

    def die(_: Sequence[Part]) -> None:
        raise _Deadly("secret")

    is_running, hold = hold_next_pass(bench.model)
    sinks = [submit(bench.engine, _LONG) for _ in range(3)]
    assert_soon(is_running)
    bench.model.before_forward = die
    hold.set()

    for sink in sinks:
        sink.wait_for_end()
        assert isinstance(sink.error, ServerError)
        assert "the engine has stopped after an error" in str(sink.error)
    assert "_Deadly" in caplog.text
    assert "secret" not in caplog.text
    assert "has stopped after an error" in _find_refusal(bench.engine)
    assert bench.engine.measure_heartbeat_ms() > 1e3 * 3600 * 24 * 365
    bench.engine.close()


def test_the_heartbeat_stays_low_during_a_long_request(scripted: ScriptedBench) -> None:
    measured: list[float] = []

    def let_time_pass(_steps: Sequence[Part]) -> None:
        scripted.clock.now += 1.0
        measured.append(scripted.engine.measure_heartbeat_ms())

    scripted.model.before_forward = let_time_pass
    complete(scripted.engine, _LONG)

    assert len(measured) >= 50
    assert max(measured) <= 1000.0


@pytest.mark.parametrize("seconds_per_row", [0.2, 6.0])
def test_a_large_model_is_not_taken_for_one_that_hangs(scripted: ScriptedBench, seconds_per_row: float) -> None:
    """As on one thread with 7 billion weights, and with thirty times as many."""
    measured: list[float] = []

    def read_slowly(parts: Sequence[Part]) -> None:
        scripted.clock.now += seconds_per_row * sum(part.num_new_rows for part in parts)
        measured.append(scripted.engine.measure_heartbeat_ms())

    scripted.model.before_forward = read_slowly
    complete(scripted.engine, _GOOD)  # as when the model is loaded: one pass over a few rows
    complete(scripted.engine, CompletionRequest("name = 1\n" * 60, max_tokens=1))
    complete(scripted.engine, CompletionRequest("other = 2\n" * 60, max_tokens=1))

    assert len(measured) > 20
    assert max(measured) < 60_000


def test_where_steps_take_long_one_that_hangs_is_found_all_the_same() -> None:
    clock = Clock()
    heartbeat = Heartbeat(clock)
    for _ in range(3):
        clock.now += 100
        heartbeat.beat()
    clock.now += 300
    assert heartbeat.measure_ms() <= 60_000
    clock.now += 700
    assert heartbeat.measure_ms() > 60_000


def test_a_hanging_step_shows_in_the_heartbeat_even_with_an_empty_queue_but_a_rest_does_not(
    scripted: ScriptedBench,
) -> None:
    complete(scripted.engine, _GOOD)
    while scripted.engine.measure_heartbeat_ms():
        pass  # the thread has sent the last chunk and does not rest yet
    scripted.clock.now += 1000
    assert scripted.engine.measure_heartbeat_ms() == 0.0
    is_stepping, hold = hold_next_pass(scripted.model)
    sink = submit(scripted.engine, _GOOD)
    assert_soon(is_stepping)
    measured = []
    for _ in range(3):
        scripted.clock.now += 10
        measured.append(scripted.engine.measure_heartbeat_ms())
    hold.set()
    sink.wait()

    assert measured == [10_000, 20_000, 30_000]
