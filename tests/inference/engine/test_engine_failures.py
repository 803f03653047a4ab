"""Failures: only the request that causes one fails, and all others are answered. Whether the engine lives is told."""

import dataclasses
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from inference.engine.engine import Engine
from inference.errors import OverloadedError, ServerError
from inference.model.language_model import SequencePart
from inference.model.sampler import SampleRequest, SampleResult
from inference.protocol.completion import CompletionRequest, Healing
from tests.support.engine_bench import (
    UNBOUNDED,
    ScriptedBench,
    holding,
    with_settings,
)
from tests.support.scripted_model import raise_full
from tests.support.sinks import CollectingSink, complete, submit
from tests.support.toys import toy_tokenizer

_GOOD = CompletionRequest("x = ", max_tokens=3, extent=UNBOUNDED)
# The scripts know it by its temperature or its first token. All hooks meet it.
_BAD = dataclasses.replace(_GOOD, prefix="bad = ", temperature=0.5, num_candidates=3, explain=True)
_BAD_ID = toy_tokenizer("qwen").encode("bad")[0]
_LONG = CompletionRequest("x = ", max_tokens=400, extent=UNBOUNDED)


class _PanicError(BaseException):
    """As libraries in Rust raise."""


def _fail_if(is_bad: bool, error: type[BaseException] = RuntimeError) -> Any:
    if is_bad:
        raise error("secret")


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


def _complete_together(bench: ScriptedBench, requests: Sequence[CompletionRequest]) -> list[CollectingSink]:
    """Submits all requests before the first step. Returns their sinks, when all have ended."""
    with holding(bench, CompletionRequest("y", max_tokens=1)):
        sinks = [submit(bench.engine, request) for request in requests]
    for sink in sinks:
        sink.wait_for_end()
    return sinks


@with_settings(memory_mib=0)
@pytest.mark.parametrize(
    ("hook", "action", "error"),
    [
        (
            "before_forward",
            lambda parts: [_fail_if(_BAD_ID in part.tree.chain_ids) for part in parts],
            "RuntimeError",
        ),
        (
            "before_choose",
            lambda asked: _fail_if(any(each.sampling.temperature for each in asked), _PanicError),
            "_PanicError",
        ),
        ("before_keep", lambda cache: _fail_if(_BAD_ID in cache.token_ids, _PanicError), "_PanicError"),
        ("before_keep", lambda cache: _fail_if(_BAD_ID in cache.token_ids), "RuntimeError"),
        ("before_reserve", lambda cache: _fail_if(_BAD_ID in cache.token_ids), "RuntimeError"),
        ("before_fork", raise_full, None),
        ("spoil", _spoil_choice, "IndexError"),
        ("spoil", _spoil_explanation, "IndexError"),
    ],
)
def test_a_request_that_fails_fails_alone_without_its_text_in_the_log_and_its_caches_are_released(
    scripted: ScriptedBench,
    hook: str,
    action: Callable[..., Any],
    error: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error of ours is reported as it is."""
    caplog.set_level(logging.DEBUG)
    expected = complete(scripted.engine, _GOOD).texts
    setattr(scripted.model, hook, action)

    first, bad, second = _complete_together(scripted, [_GOOD, _BAD, _GOOD])

    if error is None:
        assert isinstance(bad.error, OverloadedError)
        assert "no memory left" in str(bad.error)
    else:
        assert str(bad.error) == f"the server failed on this request ({error}); its log says where"
        assert error in caplog.text
    assert "secret" not in caplog.text
    assert first.wait().texts == second.wait().texts == expected
    assert complete(scripted.engine, dataclasses.replace(_GOOD, healing=Healing.NONE)).text
    scripted.engine.close()
    bad.error = None  # the traceback of our own refers to the caches
    assert scripted.model.num_held == 0


@with_settings(memory_mib=0)
def test_a_cache_that_cannot_be_allocated_fails_its_own_request(scripted: ScriptedBench) -> None:
    fails = itertools.chain([False, False, True], itertools.repeat(False))
    scripted.model.before_new_cache = lambda: raise_full() if next(fails) else None
    first, second, third = _complete_together(scripted, [_GOOD] * 3)

    assert isinstance(second.error, OverloadedError)
    assert complete(scripted.engine, _GOOD).texts == third.texts == first.texts == [first.text]


@with_settings(max_tokens=128)
@pytest.mark.parametrize("broken", ["send", "fail"])
def test_a_sink_that_raises_does_not_affect_other_requests(
    scripted: ScriptedBench, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink, has_raised = CollectingSink(), threading.Event()

    def fail(_: object) -> None:
        has_raised.set()
        raise RuntimeError("secret")

    setattr(sink, broken, fail)
    too_long = dataclasses.replace(_GOOD, prefix=2000 * "n", healing=Healing.GREEDY)  # refused through `fail`
    scripted.engine.submit(too_long if broken == "fail" else _GOOD, sink)
    other = submit(scripted.engine, _GOOD)

    assert other.wait().text
    assert complete(scripted.engine, _GOOD).text
    assert has_raised.wait(60)
    assert isinstance(sink.error, ServerError) == (broken != "fail")
    assert "secret" not in caplog.text


# Whether the engine lives


def _find_refusal(engine: Engine) -> str:
    """Why a full engine refuses a request."""
    with pytest.raises((OverloadedError, ServerError)) as caught:
        submit(engine, _LONG)
    return str(caught.value)


@with_settings(max_sequences=1)
def test_closing_ends_every_accepted_request_and_refuses_more(scripted: ScriptedBench) -> None:
    closer = threading.Thread(target=scripted.engine.close)
    with holding(scripted, _LONG) as running:
        sinks = [running, *(submit(scripted.engine, _LONG) for _ in range(2))]  # still in the inbox when it ends
        closer.start()
        while "shutting down" not in _find_refusal(scripted.engine):
            time.sleep(0.001)
    closer.join()

    for sink in sinks:
        sink.wait_for_end()
        assert "shutting down" in str(sink.error)
    assert "shutting down" in _find_refusal(scripted.engine)


class _Deadly(SystemExit):
    """An exception that the engine does not handle."""


@with_settings(max_sequences=1)
def test_if_the_thread_ends_no_request_is_left_waiting_or_accepted(
    scripted: ScriptedBench, caplog: pytest.LogCaptureFixture
) -> None:
    def die(_: Sequence[SequencePart]) -> None:
        raise _Deadly("secret")

    with holding(scripted, _LONG) as running:
        sinks = [running, *(submit(scripted.engine, _LONG) for _ in range(2))]
        scripted.model.before_forward = die

    for sink in sinks:
        sink.wait_for_end()
        assert isinstance(sink.error, ServerError)
        assert "the engine has stopped after an error" in str(sink.error)
    assert "_Deadly" in caplog.text
    assert "secret" not in caplog.text
    assert "has stopped after an error" in _find_refusal(scripted.engine)
    assert scripted.engine.heartbeat.measure_ms() > 1e3 * 3600 * 24 * 365


@pytest.mark.parametrize("seconds_per_row", [0.2, 6.0])
def test_a_large_model_is_not_taken_for_one_that_hangs(scripted: ScriptedBench, seconds_per_row: float) -> None:
    """As on one thread with 7 billion weights, and with thirty times as many."""
    measured: list[float] = []

    def read_slowly(parts: Sequence[SequencePart]) -> None:
        scripted.clock.now += seconds_per_row * sum(part.num_new_tokens for part in parts)
        measured.append(scripted.engine.heartbeat.measure_ms())

    scripted.model.before_forward = read_slowly
    complete(scripted.engine, _GOOD)  # as when the model is loaded: one pass over a few rows
    complete(scripted.engine, CompletionRequest("name = 1\n" * 60, max_tokens=1))
    complete(scripted.engine, CompletionRequest("other = 2\n" * 60, max_tokens=1))

    assert len(measured) > 20
    assert max(measured) < 60_000


def test_a_hanging_step_shows_in_the_heartbeat_even_with_an_empty_queue_but_a_rest_does_not(
    scripted: ScriptedBench,
) -> None:
    complete(scripted.engine, _GOOD)
    while scripted.engine.heartbeat.measure_ms():
        pass  # the thread has sent the last chunk and does not rest yet
    scripted.clock.now += 1000
    assert scripted.engine.heartbeat.measure_ms() == 0.0
    measured = []
    with holding(scripted, _GOOD):
        for _ in range(3):
            scripted.clock.now += 10
            measured.append(scripted.engine.heartbeat.measure_ms())

    assert measured == [10_000, 20_000, 30_000]
