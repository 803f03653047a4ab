"""Failures: only the request that causes one fails, and all others are answered."""

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.errors import InvalidRequestError, OverloadedError, ServerError
from inference.model.language_model import Part, SampleRequest, SampleResult
from inference.protocol.completion import CompletionRequest, Healing
from tests.support.engine_bench import UNBOUNDED, Clock, ScriptedBench, assert_soon, build_scripted_bench
from tests.support.scripted_model import ScriptedModel, raise_full
from tests.support.sinks import CollectingSink, complete, submit
from tests.support.toys import build_prompts, toy_tokenizer

_GOOD = CompletionRequest("x = ", max_tokens=3, extent=UNBOUNDED)
_BAD = CompletionRequest("bad = ", max_tokens=3, extent=UNBOUNDED, temperature=0.5)  # the scripts know it by this
_BAD_ID = toy_tokenizer("qwen").encode("bad")[0]
_LONG = CompletionRequest("x = ", max_tokens=400, extent=UNBOUNDED)


def _fail(*_args: Any) -> Any:
    raise RuntimeError("secret")


def _is_bad(request: SampleRequest) -> bool:
    return request.sampling.temperature == _BAD.temperature


def _fail_choices_of_the_bad(requests: Sequence[SampleRequest]) -> None:
    if any(_is_bad(request) for request in requests):
        _fail()


def _fail_forwards_of_the_bad(parts: Sequence[Part]) -> None:
    if any(_BAD_ID in part.tree.chain_ids for part in parts):
        _fail()


def _spoil_choice(request: SampleRequest, result: SampleResult) -> SampleResult:
    """Chooses a token that is not in the vocabulary."""
    choices = tuple(dataclasses.replace(choice, token_id=10**6) for choice in result.choices)
    return dataclasses.replace(result, choices=choices) if _is_bad(request) else result


def _spoil_explanation(request: SampleRequest, result: SampleResult) -> SampleResult:
    """Explains with a best token that is not in the vocabulary."""
    if not _is_bad(request) or result.scores is None:
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


def test_a_cache_that_cannot_be_allocated_fails_its_own_request(scripted: ScriptedBench) -> None:
    def fail_the_second() -> None:
        if scripted.model.num_caches_made == 1:
            scripted.model.before_new_cache = lambda: None
            raise_full()

    scripted.model.before_new_cache = fail_the_second
    first, second, third = _submit_together(scripted, [_GOOD] * 3)

    assert isinstance(second.error, OverloadedError)
    assert len(first.text) > 0
    assert third.texts == first.texts
    assert complete(scripted.engine, _GOOD).texts == first.texts


@pytest.mark.parametrize(
    ("hook", "action"),
    [
        ("before_forward", _fail_forwards_of_the_bad),
        ("before_choose", _fail_choices_of_the_bad),
        ("spoil", _spoil_choice),
    ],
)
def test_a_request_that_fails_in_a_step_fails_alone(
    scripted: ScriptedBench, hook: str, action: Callable[..., Any]
) -> None:
    expected = complete(scripted.engine, _GOOD).texts
    setattr(scripted.model, hook, action)

    first, bad, second = _submit_together(scripted, [_GOOD, _BAD, _GOOD])

    assert str(bad.error) == f"the server failed on this request ({_name_of(action)}); its log says where"
    assert first.wait().texts == second.wait().texts == expected
    assert complete(scripted.engine, _GOOD).texts == expected


def _name_of(action: Callable[..., Any]) -> str:
    return "IndexError" if action is _spoil_choice else "RuntimeError"


@pytest.mark.parametrize("hook", ["before_keep", "before_reserve"])
def test_an_error_of_a_cache_fails_its_own_request(scripted: ScriptedBench, hook: str) -> None:
    failed: list[object] = []

    def fail_once(cache: object) -> None:
        if not failed:
            failed.append(cache)
            _fail()

    setattr(scripted.model, hook, fail_once)
    sinks = _submit_together(scripted, [_GOOD] * 3)

    assert [sink.error is not None for sink in sinks] == [True, False, False]
    assert sinks[1].texts == sinks[2].texts


def test_a_fork_that_cannot_be_allocated_fails_its_own_request(scripted: ScriptedBench) -> None:
    scripted.model.before_fork = raise_full

    several, one = _submit_together(scripted, [dataclasses.replace(_GOOD, num_candidates=3), _GOOD])

    assert isinstance(several.error, OverloadedError)
    assert len(one.wait().text) > 0


def test_a_failed_explanation_fails_its_own_request(scripted: ScriptedBench) -> None:
    scripted.model.spoil = _spoil_explanation

    bad, good = _submit_together(scripted, [dataclasses.replace(_BAD, explain=True), _GOOD])

    assert isinstance(bad.error, ServerError)
    assert len(good.wait().text) > 0


def test_a_failed_common_step_is_retried_for_each_request_alone(scripted: ScriptedBench) -> None:
    def fail_when_many(steps: Sequence[Part]) -> None:
        if len(steps) > 1:
            raise_full()

    expected = complete(scripted.engine, _GOOD).texts
    scripted.model.before_forward = fail_when_many

    sinks = _submit_together(scripted, [_GOOD] * 3)

    assert [sink.wait().texts for sink in sinks] == [expected] * 3


def test_a_step_that_always_fails_ends_its_requests_but_not_the_engine(scripted: ScriptedBench) -> None:
    scripted.model.before_forward = _fail
    sinks = _submit_together(scripted, [_GOOD] * 3)
    scripted.model.before_forward = lambda _: None

    assert [type(sink.error) for sink in sinks] == [ServerError] * 3
    assert complete(scripted.engine, _GOOD).text


def test_our_own_error_is_reported_unchanged(scripted: ScriptedBench) -> None:
    scripted.model.before_forward = lambda _: raise_full()

    [sink] = _submit_together(scripted, [_GOOD])

    assert isinstance(sink.error, OverloadedError)
    assert "no memory left" in str(sink.error)


def test_caches_of_a_failed_request_are_released() -> None:
    bench = build_scripted_bench(memory_mib=0)
    with closing(bench.engine):
        bench.model.spoil = _spoil_choice
        bad, good = _submit_together(bench, [dataclasses.replace(_BAD, num_candidates=3), _GOOD])
        assert bad.error
        assert good.wait().text
        complete(bench.engine, CompletionRequest("", max_tokens=1, healing=Healing.NONE))  # the loop has run again

    assert bench.model.num_held == 0


def test_log_and_error_do_not_contain_the_text_of_an_exception(
    scripted: ScriptedBench, caplog: pytest.LogCaptureFixture
) -> None:
    scripted.model.before_forward = _fail_forwards_of_the_bad
    with caplog.at_level(logging.DEBUG):
        bad, _ = _submit_together(scripted, [_BAD, _GOOD])

    assert "RuntimeError" in caplog.text
    assert "test_engine_failures.py" in caplog.text
    assert "secret" not in caplog.text
    assert "secret" not in str(bad.error)


# Sinks


class _BrokenSink(CollectingSink):
    """Raises from one of its methods."""

    def __init__(self, broken: str) -> None:
        super().__init__()
        self.raised = threading.Event()
        setattr(self, broken, self._break)

    def _break(self, *_args: object) -> None:
        self.raised.set()
        raise RuntimeError("secret")


@pytest.mark.parametrize("broken", ["send", "is_cancelled"])
def test_a_sink_that_raises_gets_the_failure_of_its_request(scripted: ScriptedBench, broken: str) -> None:
    sink = _BrokenSink(broken)
    scripted.engine.submit(_GOOD, sink)
    other = submit(scripted.engine, _GOOD)

    sink.wait_for_end()
    assert isinstance(sink.error, ServerError)
    assert other.wait().text
    assert complete(scripted.engine, _GOOD).text


def test_a_sink_that_raises_in_fail_does_not_affect_other_requests(
    scripted: ScriptedBench, caplog: pytest.LogCaptureFixture
) -> None:
    sink = _BrokenSink("fail")
    scripted.engine.submit(dataclasses.replace(_GOOD, max_tokens=510), sink)  # refused through `fail`

    assert complete(scripted.engine, _GOOD).text
    assert_soon(sink.raised)
    assert "secret" not in caplog.text


# Requests that cannot be prepared


def test_a_request_that_cannot_be_prepared_fails_alone(scripted: ScriptedBench) -> None:
    scripted.model.before_new_random_source = _fail

    bad, good = _submit_together(scripted, [_BAD, _GOOD])

    assert isinstance(bad.error, ServerError)
    assert good.wait().text


def test_a_request_that_does_not_fit_is_refused(scripted: ScriptedBench) -> None:
    with pytest.raises(InvalidRequestError, match="max_tokens is 510"):
        complete(scripted.engine, dataclasses.replace(_GOOD, max_tokens=510))


# A thread that ends


class _Deadly(BaseException):
    """An exception that the engine does not handle."""


class _FailingClock(Clock):
    """A clock that raises once on the engine's thread when the test says so."""

    is_deadly = False

    def __call__(self) -> float:
        if self.is_deadly and threading.current_thread().name == "midtoken-engine":
            raise _Deadly("secret")
        return self.now


@pytest.fixture
def mortal() -> Iterator[tuple[ScriptedBench, _FailingClock]]:
    """An engine with room for one sequence, whose clock can end its thread."""
    toy, clock = toy_tokenizer("qwen"), _FailingClock()
    model = ScriptedModel(toy)
    engine = Engine(EngineConfig(Path("model"), max_sequences=1), model, build_prompts(toy), clock)
    with closing(engine):
        yield ScriptedBench(model, engine, clock), clock


def _kill(bench: ScriptedBench, clock: _FailingClock) -> list[CollectingSink]:
    """Ends the engine's thread. Returns the sinks of the requests that were running and waiting."""

    def die(_steps: Sequence[Part]) -> None:
        clock.is_deadly = True

    hold = threading.Event()
    bench.model.before_forward = lambda _: assert_soon(hold)
    sinks = [submit(bench.engine, _LONG) for _ in range(3)]
    bench.model.before_forward = die
    hold.set()
    for sink in sinks:
        sink.wait_for_end()
    return sinks


def test_if_the_thread_ends_no_request_is_left_waiting(
    mortal: tuple[ScriptedBench, _FailingClock], caplog: pytest.LogCaptureFixture
) -> None:
    sinks = _kill(*mortal)

    for sink in sinks:
        assert isinstance(sink.error, ServerError)
        assert "the engine has stopped after an error" in str(sink.error)
    assert "_Deadly" in caplog.text
    assert "secret" not in caplog.text


def test_an_engine_whose_thread_has_ended_refuses(mortal: tuple[ScriptedBench, _FailingClock]) -> None:
    _kill(*mortal)
    mortal[1].is_deadly = False

    with pytest.raises(ServerError, match="has stopped after an error"):
        submit(mortal[0].engine, _GOOD)


def test_the_heartbeat_of_an_ended_thread_exceeds_any_limit(
    mortal: tuple[ScriptedBench, _FailingClock],
) -> None:
    bench, clock = mortal
    _kill(bench, clock)

    assert bench.engine.measure_heartbeat_ms() > 1e3 * 3600 * 24 * 365


# The heartbeat of a thread that lives


def test_an_idle_engine_has_a_heartbeat_of_zero(scripted: ScriptedBench) -> None:
    complete(scripted.engine, _GOOD)
    complete(scripted.engine, _GOOD)
    while scripted.engine.measure_heartbeat_ms():
        pass  # the thread has sent the last chunk and does not rest yet
    scripted.clock.now += 1000

    assert scripted.engine.measure_heartbeat_ms() == 0.0


def test_the_heartbeat_stays_low_during_a_long_request(scripted: ScriptedBench) -> None:
    measured: list[float] = []

    def let_time_pass(_steps: Sequence[Part]) -> None:
        scripted.clock.now += 1.0
        measured.append(scripted.engine.measure_heartbeat_ms())

    scripted.model.before_forward = let_time_pass
    complete(scripted.engine, _LONG)

    assert len(measured) >= 50
    assert max(measured) <= 1000.0


def test_a_hanging_step_shows_in_the_heartbeat_even_with_an_empty_queue(scripted: ScriptedBench) -> None:
    hold, is_stepping = threading.Event(), threading.Event()

    def hang(_steps: Sequence[Part]) -> None:
        is_stepping.set()
        assert_soon(hold)

    scripted.model.before_forward = hang
    sink = submit(scripted.engine, _GOOD)
    assert_soon(is_stepping)
    measured = []
    for _ in range(3):
        scripted.clock.now += 10
        measured.append(scripted.engine.measure_heartbeat_ms())
    hold.set()
    sink.wait()

    assert measured == [10_000, 20_000, 30_000]
