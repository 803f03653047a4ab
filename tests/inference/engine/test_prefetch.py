"""Prefetches: what they read, who comes before them, and what becomes of them under load."""

import dataclasses
from collections.abc import Iterator
from contextlib import closing

import pytest

from inference.errors import OverloadedError
from inference.protocol.completion import CompletionRequest, FinishReason, Healing, Priority
from tests.support.answer_sink import wait_until_soon
from tests.support.engine_bench import UNBOUNDED, ScriptedBench, assert_soon, build_scripted_bench, hold_next_pass
from tests.support.sinks import CollectingSink, complete, submit

_LINES = "".join(f"value_{number} = {number}\n" for number in range(100))  # far more than one step reads
_KEY = CompletionRequest(_LINES + "y = val", "\n\nend()\n", max_tokens=3, extent=UNBOUNDED, document="x")


def _ahead(request: CompletionRequest) -> CompletionRequest:
    return dataclasses.replace(request, priority=Priority.PREFETCH)


@pytest.fixture(params=[True, False])
def bench(request: pytest.FixtureRequest) -> Iterator[ScriptedBench]:
    """An engine that reads a long text in several steps. It has room for two sequences."""
    bench = build_scripted_bench(8000, runs_together=request.param, max_context_tokens=4000, max_sequences=2)
    with closing(bench.engine):
        yield bench


@pytest.mark.parametrize("healing", Healing)
def test_a_prefetch_has_no_text_and_the_key_after_it_reads_nothing(bench: ScriptedBench, healing: Healing) -> None:
    key = dataclasses.replace(_KEY, healing=healing)
    ahead, first = complete(bench.engine, _ahead(key)), complete(bench.engine, key)

    assert (ahead.text, ahead.finish_reason, ahead.stats.num_tokens) == ("", FinishReason.READ, 0)
    assert ahead.stats.num_read_tokens == ahead.stats.num_context_tokens > 600
    assert (first.stats.num_first_rows, first.finish_reason) == (0, FinishReason.LENGTH)


def test_a_key_waits_for_one_step_of_a_prefetch_which_goes_on_afterwards(bench: ScriptedBench) -> None:
    other = dataclasses.replace(_KEY, prefix="z", document="y")
    ended: list[str] = []
    is_running, may_go_on = hold_next_pass(bench.model)
    ahead = CollectingSink(lambda: ended.append("ahead"))
    bench.engine.submit(_ahead(_KEY), ahead)
    assert_soon(is_running)
    key = CollectingSink(lambda: ended.append("key"))
    bench.engine.submit(other, key)
    num_before = len(bench.model.step_sizes)
    may_go_on.set()
    key.wait(), ahead.wait()

    assert (ended[0], ended[-1]) == ("key", "ahead")
    assert set(bench.model.step_sizes[num_before:]) == {1}  # no person's step is longer for it
    assert ahead.finish_reason is FinishReason.READ
    assert complete(bench.engine, _KEY).stats.num_read_tokens == 0


@pytest.mark.parametrize(
    ("older", "newer", "is_superseded"),
    [(_ahead(_KEY), _ahead(_KEY), True), (_ahead(_KEY), _KEY, True), (_KEY, _ahead(_KEY), False)],
)
def test_a_prefetch_is_superseded_by_any_newer_request_and_supersedes_no_person(
    bench: ScriptedBench, older: CompletionRequest, newer: CompletionRequest, is_superseded: bool
) -> None:
    is_running, may_go_on = hold_next_pass(bench.model)
    first = submit(bench.engine, older)
    assert_soon(is_running)
    second = submit(bench.engine, newer)
    may_go_on.set()

    assert (first.wait().finish_reason is FinishReason.SUPERSEDED) == is_superseded
    assert second.wait().finish_reason is not FinishReason.SUPERSEDED
    if is_superseded:  # what was read in one step is not read again
        assert 0 < second.stats.num_read_tokens < second.stats.num_context_tokens


def test_under_load_a_prefetch_is_refused_and_one_that_is_in_the_way_ends() -> None:
    bench = build_scripted_bench(max_tokens=4000, max_sequences=2, max_waiting=2, max_context_tokens=3000)
    with closing(bench.engine):
        is_running, may_go_on = hold_next_pass(bench.model)
        ahead = submit(bench.engine, _ahead(_KEY))
        assert_soon(is_running)
        keys = [submit(bench.engine, dataclasses.replace(_KEY, document=name)) for name in "yz"]
        with pytest.raises(OverloadedError, match="try again in a moment"):
            submit(bench.engine, _ahead(dataclasses.replace(_KEY, document="w")))
        may_go_on.set()

        assert [key.wait().finish_reason for key in keys] == [FinishReason.LENGTH] * 2
        assert ahead.wait().finish_reason is FinishReason.CANCELLED
        assert ahead.stats.num_forwards == 1


def test_a_window_that_is_about_to_move_is_read_before_it_moves() -> None:
    """The answers are those of an engine that has read nothing."""
    bench = build_scripted_bench(max_tokens=512, max_context_tokens=256)
    with closing(bench.engine):
        moves = dict.fromkeys([False, True], 0)
        for reads_ahead in moves:
            for number in range(60, 100):  # a few tokens each
                prefix = f"# {reads_ahead}\n" + "".join(_LINES.splitlines(keepends=True)[:number])
                key = CompletionRequest(prefix, max_tokens=2, extent=UNBOUNDED)
                moves[reads_ahead] += complete(bench.engine, key).stats.num_read_tokens > 100
                if reads_ahead:
                    complete(bench.engine, _ahead(key))

    assert moves[False] >= 3
    assert moves[True] == 1  # the first, of which nothing was read before


def test_what_prefetches_have_read_is_remembered_within_the_same_bound() -> None:
    bench = build_scripted_bench(max_tokens=512, memory_mib=0)
    with closing(bench.engine):
        complete(bench.engine, _ahead(_KEY))

        wait_until_soon(lambda: bench.model.num_held == 0)
