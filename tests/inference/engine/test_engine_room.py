"""The room of an engine: no sequence exceeds the window, and all caches together stay within `cache_tokens`."""

from contextlib import closing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inference.errors import InvalidRequestError, OverloadedError
from inference.protocol.completion import CompletionRequest, FinishReason, Healing
from tests.support.engine_bench import UNBOUNDED, build_scripted_bench
from tests.support.sinks import CollectingSink, submit
from tests.support.toys import texts

_CACHE_TOKENS = 250

_TEXT = "import os\n" * 24

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

    What it writes may be the suffix by chance.
    """
    bench = build_scripted_bench(kind=kind, cache_tokens=_CACHE_TOKENS, memory_mib=0)
    model, ends = bench.model, set[str]()

    @settings(max_examples=settings().max_examples, database=None)
    @given(requests=st.lists(_requests, min_size=1, max_size=4), window=st.integers(24, 140))
    @example(requests=[CompletionRequest("x", max_tokens=60)], window=24)
    def check(requests: list[CompletionRequest], window: int) -> None:
        model.max_tokens, model.furthest, model.most_held, model.num_grown = window, 0, 0, 0
        sinks = [submit(bench.engine, request) for request in requests]
        for request, sink in zip(requests, sinks, strict=True):
            sink.wait_for_end()
            if sink.error is None:
                by_chance = (FinishReason.SUFFIX,) if request.suffix else ()
                assert sink.finish_reason in (FinishReason.LENGTH, FinishReason.EXTENT, *by_chance)
            else:
                assert isinstance(sink.error, InvalidRequestError | OverloadedError)
            ends.add(type(sink.error).__name__)

        assert model.furthest <= window
        assert model.most_held <= _CACHE_TOKENS
        assert model.num_grown == 0

    with closing(bench.engine):
        check()
    assert ends >= {"NoneType", "InvalidRequestError"}, "the case says little"


def test_copies_of_a_sequence_in_use_stay_within_the_room() -> None:
    bench = build_scripted_bench(cache_tokens=400, memory_mib=0)
    copies: list[CollectingSink] = []

    def submit_others() -> None:
        if not copies:
            request = CompletionRequest(_TEXT[:40], max_tokens=5, num_candidates=2, extent=UNBOUNDED)
            copies.extend(submit(bench.engine, request) for _ in range(3))

    first = CollectingSink(submit_others)
    with closing(bench.engine):
        bench.engine.submit(CompletionRequest(_TEXT, max_tokens=60, extent=UNBOUNDED), first)
        first.wait()
        stats = [copy.wait().stats for copy in copies]

    assert [each.num_read_tokens < each.num_context_tokens for each in stats] == [True] * 3
    assert bench.model.most_held <= 400
    assert bench.model.num_grown == 0


def test_caches_are_released_when_a_request_ends() -> None:
    bench = build_scripted_bench(memory_mib=0)
    with closing(bench.engine):
        for _ in range(3):
            submit(bench.engine, CompletionRequest("x = ", max_tokens=5, num_candidates=3, extent=UNBOUNDED)).wait()
    assert bench.model.num_held == 0
    assert bench.model.most_held > 0
