"""How requests end: cancelled, at their deadline, refused, at a limit, or when the engine closes."""

import threading
import time
from contextlib import closing
from itertools import accumulate

import pytest

from inference.engine.engine import Engine
from inference.errors import InvalidRequestError, OverloadedError
from inference.model.language_model import SampleRequest, SampleResult
from inference.protocol.completion import CompletionRequest, FinishReason, Healing
from tests.inference.conftest import MakeModel
from tests.support.engine_bench import UNBOUNDED, Bench, ScriptedBench, assert_soon, build_bench
from tests.support.sinks import CollectingSink, complete, submit
from tests.support.toys import build_prompts


def _signal_and_wait(said: threading.Event, hold: threading.Event) -> None:
    said.set()
    assert_soon(hold)


def test_a_cancelled_request_ends_after_the_running_step(bench: Bench) -> None:
    sink = CollectingSink()
    steps: list[int] = []

    def cancel_in_the_third() -> None:
        steps.append(1)
        if len(steps) == 3:
            sink.cancelled.set()

    bench.runner.before_forward = cancel_in_the_third
    bench.engine.submit(CompletionRequest("x = ", max_tokens=200, extent=UNBOUNDED, healing=Healing.NONE), sink)
    sink.wait()

    assert sink.finish_reason is FinishReason.CANCELLED
    assert len(steps) == 3


def test_a_waiting_request_can_be_cancelled_without_a_step(small_bench: Bench) -> None:
    hold, waiting = threading.Event(), CollectingSink()
    small_bench.runner.before_forward = lambda: assert_soon(hold)
    running = submit(small_bench.engine, CompletionRequest("x", max_tokens=2, num_candidates=2))
    small_bench.engine.submit(CompletionRequest("y", max_tokens=2), waiting)
    waiting.cancelled.set()
    hold.set()

    assert waiting.wait().finish_reason is FinishReason.CANCELLED
    assert waiting.stats.num_forwards == 0
    running.wait()


def test_cancelling_makes_room_for_a_waiting_request(small_bench: Bench) -> None:
    hold = threading.Event()
    small_bench.runner.before_forward = lambda: assert_soon(hold)
    running = submit(small_bench.engine, CompletionRequest("x", max_tokens=300, num_candidates=2, extent=UNBOUNDED))
    waiting = submit(small_bench.engine, CompletionRequest("y", max_tokens=2))
    running.cancelled.set()
    hold.set()

    assert waiting.wait().finish_reason is not FinishReason.CANCELLED


def test_text_generated_before_the_deadline_is_sent(bench: Bench) -> None:
    def let_time_pass() -> None:
        bench.clock.now += 0.03

    bench.runner.before_forward = let_time_pass
    request = CompletionRequest(
        "x = ", max_tokens=200, deadline_ms=100, extent=UNBOUNDED, healing=Healing.NONE, temperature=1.0, seed=4
    )
    sink = complete(bench.engine, request)

    assert sink.finish_reason is FinishReason.DEADLINE
    assert sink.stats.num_tokens == sink.stats.num_forwards == 4
    assert sink.text
    assert sink.stats.total_ms == pytest.approx(120)


def test_a_full_engine_refuses_requests(small_bench: Bench) -> None:
    hold, is_running = threading.Event(), threading.Event()
    small_bench.runner.before_forward = lambda: _signal_and_wait(is_running, hold)
    taken = [submit(small_bench.engine, CompletionRequest("x", max_tokens=2))]
    assert_soon(is_running)
    taken += [submit(small_bench.engine, CompletionRequest("x", max_tokens=2)) for _ in range(2)]

    with pytest.raises(OverloadedError, match="wait already"):
        submit(small_bench.engine, CompletionRequest("x"))

    hold.set()
    for sink in taken:
        sink.wait()
    complete(small_bench.engine, CompletionRequest("x", max_tokens=2))


def test_a_request_that_could_never_run_is_refused(small_bench: Bench) -> None:
    with pytest.raises(OverloadedError, match="3 sequences"):
        complete(small_bench.engine, CompletionRequest("x", num_candidates=3))


def test_room_is_reserved_for_healed_bytes_spelled_one_by_one(make_model: MakeModel) -> None:
    bench = build_bench(make_model("qwen"), "qwen", cache_tokens=120)
    request = CompletionRequest("x = " + "ab" * 40, max_tokens=50, healing=Healing.GREEDY)
    with closing(bench.engine), pytest.raises(OverloadedError, match="120"):
        complete(bench.engine, request)


def test_more_tokens_than_the_window_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidRequestError, match="512"):
        complete(bench.engine, CompletionRequest("x", max_tokens=510))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("healing", Healing)
@pytest.mark.parametrize("prefix", ["word " * 600 + "wor", "x = '" + "ab" * 400, "x = 1\n" + " " * 900])
def test_no_token_is_beyond_the_models_window(
    family: str, healing: Healing, prefix: str, make_model: MakeModel
) -> None:
    """GPT-2 has a table of positions and fails on the first position beyond it."""
    bench = build_bench(make_model("qwen", family), "qwen")
    furthest = 0

    def look() -> None:
        nonlocal furthest
        furthest = max(furthest, *(cache.num_tokens for cache in bench.runner.caches))

    bench.runner.before_forward = look
    with closing(bench.engine):
        complete(bench.engine, CompletionRequest(prefix, "\nx = 2\n" * 50, 100, healing, extent=UNBOUNDED))

    assert furthest < 512


@pytest.mark.parametrize("healing", Healing)
@pytest.mark.parametrize("max_tokens", [1, 2, 5])
def test_max_tokens_counts_tokens_that_go_beyond_the_healed_bytes(
    scripted: ScriptedBench, healing: Healing, max_tokens: int
) -> None:
    request = CompletionRequest("x = _num_padd", max_tokens=max_tokens, healing=healing, extent=UNBOUNDED)
    chosen: list[int] = []

    def watch(sample: SampleRequest, result: SampleResult) -> SampleResult:
        [choice] = result.choices
        path = sample.tree.find_path(choice.crossing.node)
        chosen.extend([*(sample.tree.branch_ids[branch] for branch in path), choice.token_id])
        return result

    scripted.model.spoil = watch
    sink = complete(scripted.engine, request)

    toy = scripted.model.toy
    healed = build_prompts(toy).build(request, 256).healed
    ends = list(accumulate(len(toy.vocabulary.token_bytes[token_id]) for token_id in chosen))
    assert sum(end > len(healed) for end in ends) == max_tokens
    assert toy.join(chosen) == healed + sink.text.encode()
    assert sink.finish_reason is FinishReason.LENGTH
    assert sink.stats.num_tokens == len(chosen)


# An engine that closes


def _find_refusal(engine: Engine, request: CompletionRequest) -> str:
    """Returns why a full engine refuses a request."""
    with pytest.raises(OverloadedError) as caught:
        submit(engine, request)
    return str(caught.value)


def test_closing_ends_every_accepted_request(small_bench: Bench) -> None:
    hold, is_running = threading.Event(), threading.Event()
    small_bench.runner.before_forward = lambda: _signal_and_wait(is_running, hold)
    request = CompletionRequest("x", max_tokens=300, extent=UNBOUNDED)
    sinks = [submit(small_bench.engine, request)]
    assert_soon(is_running)
    sinks += [submit(small_bench.engine, request) for _ in range(2)]  # still in the inbox when the thread ends
    closer = threading.Thread(target=small_bench.engine.close)
    closer.start()
    while "shutting down" not in _find_refusal(small_bench.engine, request):
        time.sleep(0.001)
    hold.set()
    closer.join()

    for sink in sinks:
        sink.wait_for_end()
        assert sink.error is None or "shutting down" in str(sink.error)


def test_a_closed_engine_refuses_requests(make_model: MakeModel) -> None:
    bench = build_bench(make_model("qwen"), "qwen")
    bench.engine.close()

    with pytest.raises(OverloadedError, match="shutting down"):
        submit(bench.engine, CompletionRequest("x"))
