"""Whose turn it is: the order of requests, the room that they have together, and how they end."""

import dataclasses
import functools
from collections.abc import Callable
from itertools import accumulate
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inference.engine.local_executor import LocalExecutor
from inference.errors import OverloadedError
from inference.model.sampler import SampleRequest, SampleResult
from inference.protocol.completion import Chunks, CompletionRequest, FinishReason, Healing, Priority
from tests.support.engine_bench import UNBOUNDED, ScriptedBench, holding, open_scripted_bench, with_settings
from tests.support.sinks import CollectingSink, complete, submit
from tests.support.toys import build_prompts, texts

_LINES = "".join(f"value_{number} = {number}\n" for number in range(40))
_LONG = CompletionRequest("x = ", max_tokens=200, extent=UNBOUNDED, healing=Healing.NONE)


# The order


single = with_settings(max_tokens=1024, runs_together=False)  # steps one request after the other


def _find_order(bench: ScriptedBench, requests: dict[str, CompletionRequest]) -> list[str]:
    """The names of the requests, in the order of their ends. They are submitted while another one is running."""
    order: list[str] = []
    with holding(bench, CompletionRequest("x = 1\n", max_tokens=1)):
        sinks = [
            submit(bench.engine, request, functools.partial(order.append, name)) for name, request in requests.items()
        ]
    for sink in sinks:
        sink.wait()
    return list(dict.fromkeys(order))


@single
@pytest.mark.parametrize("is_remembered", [True, False])
def test_of_two_long_texts_one_that_is_remembered_comes_first_else_the_newer(
    scripted: ScriptedBench, is_remembered: bool
) -> None:
    """The model gains nothing from company, so it steps one request after the other."""
    older = CompletionRequest(_LINES + "y = ", max_tokens=2, tenant="a", document="a")
    newer = CompletionRequest("# another file\n" + _LINES, max_tokens=2, tenant="b", document="b")
    if is_remembered:
        complete(scripted.engine, older)

    order = ["older", "newer"] if is_remembered else ["newer", "older"]
    assert _find_order(scripted, {"older": older, "newer": newer}) == order
    assert set(scripted.model.step_sizes) == {1}


@single
def test_one_that_takes_many_steps_gives_way(scripted: ScriptedBench) -> None:
    """Each of its candidates counts."""
    short = dataclasses.replace(_LONG, max_tokens=4, chunks=Chunks.LINES)  # there is one line
    many = dataclasses.replace(short, max_tokens=40, num_candidates=15)

    assert _find_order(scripted, {"many": many, "short": short}) == ["short", "many"]


def test_a_new_request_begins_in_the_next_round_whatever_has_woken_the_engine_before() -> None:
    """With --engine, each token that arrives does so."""
    wakes: list[Callable[[], None]] = []
    with patch.object(LocalExecutor, "start", lambda _, wake: wakes.append(wake)), open_scripted_bench() as bench:
        with holding(bench, _LONG) as writing:
            for _ in range(50):
                wakes[0]()
            newer = submit(bench.engine, CompletionRequest("y = ", max_tokens=1, extent=UNBOUNDED))
        newer.wait()
        writing.cancelled.set()
        assert bench.model.step_sizes[:2] == [1, 2]


@with_settings(max_tokens=2048, max_context_tokens=1500, cache_tokens=10_000)
def test_a_step_prefills_no_further_context_once_it_has_a_thousand_tokens(scripted: ScriptedBench) -> None:
    long = [CompletionRequest(f"# file {number}\n" + 3 * _LINES, max_tokens=1) for number in range(4)]
    with holding(scripted, _LONG) as writing:
        sinks = [submit(scripted.engine, request) for request in long]
    for sink in sinks:
        sink.wait()
    writing.cancelled.set()

    assert max(scripted.model.step_sizes) == 4  # one that writes, and three pieces of contexts; not all four of them


@single
@pytest.mark.parametrize(("waiting", "num_passes"), [(Priority.PREFETCH, 3), (Priority.INTERACTIVE, 10)])
def test_a_long_context_is_read_in_short_steps_while_a_person_waits_but_not_for_a_prefetch(
    scripted: ScriptedBench, waiting: Priority, num_passes: int
) -> None:
    scripted.model.before_forward = lambda _: scripted.clock.advance(0.3)
    complete(scripted.engine, CompletionRequest(_LINES, max_tokens=1, tenant="c"))  # 300 tokens in a second
    other = CompletionRequest("# another file\n" + _LINES, max_tokens=1, tenant="b", priority=waiting)
    with holding(scripted, CompletionRequest("x = 1\n", max_tokens=1, tenant="d")):
        sinks = [submit(scripted.engine, each) for each in (CompletionRequest(_LINES, max_tokens=1, tenant="a"), other)]
    stats = [sink.wait().stats for sink in sinks]

    assert (stats[0].num_forwards <= num_passes) == (waiting is Priority.PREFETCH)


# Their room


_requests = st.builds(
    CompletionRequest,
    prefix=st.tuples(texts, st.sampled_from([1, 1, 8, 40])).map(lambda drawn: drawn[0] * drawn[1]),
    suffix=st.tuples(texts, st.sampled_from([0, 1, 8])).map(lambda drawn: drawn[0] * drawn[1]),
    max_tokens=st.integers(1, 60),
    healing=st.sampled_from(Healing),
    num_candidates=st.integers(1, 3),
    extent=st.just(UNBOUNDED),
)


@pytest.mark.parametrize("kind", ["qwen", "llama2"])
def test_no_admitted_request_exceeds_the_window_or_its_reserved_room(kind: str) -> None:
    """The model spells healed bytes with as many tokens as possible, and never ends a text.

    What it writes may be the suffix or a loop by chance.
    """
    ends = set[str]()

    @settings(max_examples=settings().max_examples, database=None)
    @given(requests=st.lists(_requests, min_size=1, max_size=4), window=st.integers(24, 140))
    @example(requests=[CompletionRequest("x", max_tokens=60)], window=24)
    @example(requests=[CompletionRequest("ab" * 40, "", 60, Healing.GREEDY, num_candidates=3)], window=500)
    def check(requests: list[CompletionRequest], window: int) -> None:
        model = bench.model
        model.max_tokens, model.furthest, model.most_held, model.num_grown = window, 0, 0, 0
        sinks = [submit(bench.engine, request) for request in requests]
        for request, sink in zip(requests, sinks, strict=True):
            sink.wait_for_end()
            if sink.error is None:
                by_chance = (FinishReason.LOOP, *((FinishReason.SUFFIX,) if request.suffix else ()))
                assert sink.finish_reason in (FinishReason.LENGTH, FinishReason.EXTENT, *by_chance)
            ends.add(type(sink.error).__name__)

        assert model.furthest <= window
        assert model.most_held <= 250
        assert model.num_grown == 0

    with open_scripted_bench(kind=kind, cache_tokens=250, memory_mib=0) as bench:
        check()
    assert ends == {"NoneType", "InvalidRequestError"}


@with_settings(cache_tokens=400, memory_mib=0)
def test_copies_of_a_sequence_in_use_stay_within_the_room_and_are_released(scripted: ScriptedBench) -> None:
    text, copies = "import os\n" * 24, list[CollectingSink]()

    def submit_others() -> None:
        request = CompletionRequest(text[:40], max_tokens=5, num_candidates=2, extent=UNBOUNDED)
        copies.extend(submit(scripted.engine, request) for _ in range(3 - len(copies)))

    submit(scripted.engine, CompletionRequest(text, max_tokens=60, extent=UNBOUNDED), submit_others).wait()
    stats = [copy.wait().stats for copy in copies]
    scripted.engine.close()

    assert [each.num_read_tokens < each.num_context_tokens for each in stats] == [True] * 3
    assert 0 < scripted.model.most_held <= 400
    assert scripted.model.num_grown == 0
    assert scripted.model.num_held == 0


# Their ends


small = with_settings(max_sequences=2)


@small
def test_cancelled_requests_end_after_the_running_step_and_waiting_ones_without_one(scripted: ScriptedBench) -> None:
    request = CompletionRequest("x", max_tokens=300, num_candidates=2, extent=UNBOUNDED)
    with holding(scripted, request) as running:
        cancelled, superseded, waiting = (
            submit(scripted.engine, CompletionRequest("y", max_tokens=2, document=document))
            for document in ("", "x", "x")
        )
        for sink in (running, cancelled):
            sink.cancelled.set()

    ended = [sink.wait().finish_reason for sink in (running, cancelled, superseded, waiting)]
    assert running.stats.num_forwards == 1
    assert ended == [FinishReason.CANCELLED] * 2 + [FinishReason.SUPERSEDED, FinishReason.LENGTH]
    assert cancelled.stats.num_forwards == superseded.stats.num_forwards == 0


def test_text_generated_before_the_deadline_is_sent(scripted: ScriptedBench) -> None:
    scripted.model.before_forward = lambda _: scripted.clock.advance(0.03)
    request = CompletionRequest("x = ", max_tokens=200, deadline_ms=100, extent=UNBOUNDED, healing=Healing.NONE)
    sink = complete(scripted.engine, request)

    assert (sink.finish_reason, sink.stats.num_forwards) == (FinishReason.DEADLINE, 4)
    assert sink.text
    assert sink.stats.total_ms == pytest.approx(120)


@small
def test_no_other_begins_before_one_that_waits_for_room(scripted: ScriptedBench) -> None:
    running = CompletionRequest("a", max_tokens=50, extent=UNBOUNDED)
    large, little = (CompletionRequest("b", max_tokens=2, num_candidates=count) for count in (2, 1))

    order = _find_order(scripted, {"running": running, "large": large, "little": little})

    assert order == ["running", "large", "little"]


@small
def test_a_full_engine_refuses_requests(scripted: ScriptedBench) -> None:
    request = CompletionRequest("x", max_tokens=2)
    with holding(scripted, request) as running:
        taken = [running, *(submit(scripted.engine, request) for _ in range(65))]
        with pytest.raises(OverloadedError, match="64 requests wait already"):
            submit(scripted.engine, request)

    for sink in taken:
        sink.wait()
    complete(scripted.engine, request)


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
    assert sink.stats.num_tokens == max_tokens
