"""Prefetches: what they read, who comes before them, and what becomes of them under load."""

import dataclasses
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from inference.config import EngineConfig
from inference.engine.local_executor import start_engine
from inference.errors import OverloadedError
from inference.model.language_model import SequencePart
from inference.protocol.completion import CompletionRequest, FinishReason, Healing, Priority
from tests.support.engine_bench import (
    UNBOUNDED,
    Clock,
    ScriptedBench,
    holding,
    open_scripted_bench,
    with_settings,
)
from tests.support.scripted_model import ScriptedModel
from tests.support.sinks import complete, submit, wait_until_soon
from tests.support.toys import build_prompts, train, training_texts, wrap

_LINES = "".join(f"value_{number} = {number}\n" for number in range(100))  # far more than one step reads
_KEY = CompletionRequest(_LINES + "y = val", "\n\nend()\n", max_tokens=3, extent=UNBOUNDED, document="x")


def _ahead(request: CompletionRequest) -> CompletionRequest:
    return dataclasses.replace(request, priority=Priority.PREFETCH)


# An engine that reads a long text in several steps. It has room for two sequences.
two_ways = pytest.mark.parametrize(
    "scripted",
    [
        {"max_tokens": 8000, "max_context_tokens": 4000, "max_sequences": 2, "runs_together": runs_together}
        for runs_together in (True, False)
    ],
    indirect=True,
)


@two_ways
@pytest.mark.parametrize("healing", Healing)
def test_a_prefetch_has_no_text_and_the_key_after_it_reads_nothing(scripted: ScriptedBench, healing: Healing) -> None:
    key = dataclasses.replace(_KEY, healing=healing)
    ahead, first = complete(scripted.engine, _ahead(key)), complete(scripted.engine, key)

    assert (ahead.text, ahead.finish_reason, ahead.stats.num_tokens) == ("", FinishReason.PREFILLED, 0)
    assert ahead.stats.num_read_tokens == ahead.stats.num_context_tokens > 600
    assert (first.stats.num_first_tokens, first.finish_reason) == (0, FinishReason.LENGTH)


@two_ways
def test_a_key_waits_for_one_step_of_a_prefetch_which_goes_on_afterwards(scripted: ScriptedBench) -> None:
    has_ended: list[bool] = []
    other = dataclasses.replace(_KEY, prefix="z", document="y")
    with holding(scripted, _ahead(_KEY)) as ahead:
        num_before = len(scripted.model.step_sizes)
        key = submit(scripted.engine, other, lambda: has_ended.append(bool(ahead.chunks)))
    assert (key.wait().finish_reason, ahead.wait().finish_reason) == (FinishReason.LENGTH, FinishReason.PREFILLED)
    assert set(has_ended) == {False}
    assert set(scripted.model.step_sizes[num_before:]) == {1}  # no person's step is longer for it
    assert complete(scripted.engine, _KEY).stats.num_read_tokens == 0


@with_settings(max_tokens=4000, max_sequences=2, max_context_tokens=3000)
def test_under_load_a_prefetch_is_refused_and_one_that_is_in_the_way_ends(scripted: ScriptedBench) -> None:
    with holding(scripted, _ahead(_KEY)) as ahead:
        keys = [submit(scripted.engine, dataclasses.replace(_KEY, document=name)) for name in "yz"]
        with pytest.raises(OverloadedError, match="try again in a moment"):
            submit(scripted.engine, _ahead(dataclasses.replace(_KEY, document="w")))

    assert [key.wait().finish_reason for key in keys] == [FinishReason.LENGTH] * 2
    assert ahead.wait().finish_reason is FinishReason.CANCELLED
    assert ahead.stats.num_forwards == 1


@with_settings(max_tokens=4000, max_sequences=2, max_context_tokens=3000)
def test_a_key_that_cannot_begin_fails_alone_though_a_prefetch_has_ended_for_it(scripted: ScriptedBench) -> None:
    executor = scripted.engine._executor
    with holding(scripted, _ahead(_KEY)) as ahead:
        no_memory = patch.object(executor, "begin", side_effect=[OverloadedError("no memory")])
        no_memory.start()
        drawn = dataclasses.replace(_KEY, document="y", num_candidates=2, temperature=1.0, seed=1)
        key = submit(scripted.engine, drawn)
    with pytest.raises(OverloadedError, match="no memory"):
        key.wait()
    no_memory.stop()
    assert ahead.wait().finish_reason is FinishReason.CANCELLED
    assert complete(scripted.engine, _KEY).finish_reason is FinishReason.LENGTH


@with_settings(max_tokens=512, max_context_tokens=256)
def test_a_window_that_is_about_to_move_is_read_before_it_moves(scripted: ScriptedBench) -> None:
    """The answers are those of an engine that has read nothing."""
    moves = dict.fromkeys([False, True], 0)
    for reads_ahead in moves:
        for number in range(60, 100):  # a few tokens each
            prefix = f"# {reads_ahead}\n" + "".join(_LINES.splitlines(keepends=True)[:number])
            key = CompletionRequest(prefix, max_tokens=2, extent=UNBOUNDED)
            moves[reads_ahead] += complete(scripted.engine, key).stats.num_read_tokens > 100
            if reads_ahead:
                complete(scripted.engine, _ahead(key))

    assert moves[False] >= 3
    assert moves[True] == 1  # the first, of which nothing was read before


def test_a_large_tree_is_read_in_short_pieces_and_to_its_end() -> None:
    """One that is larger than what a sequence remembers beside the running request."""
    toy, clock = wrap("qwen", train("qwen", [*training_texts(), " " * 4096], 640, max_token_length=256)), Clock()
    model, num_pieces = ScriptedModel(toy, 2048), 0

    def forward(parts: Sequence[SequencePart]) -> None:
        nonlocal num_pieces
        num_pieces += 1
        assert num_pieces < 100, "it does not end"
        clock.advance(sum(part.num_new_tokens for part in parts) / 256)

    model.before_forward = forward
    key = CompletionRequest(_LINES + " " * 200, max_tokens=1)
    with closing(start_engine(EngineConfig(Path("model")), model, build_prompts(toy), clock)) as engine:
        ahead = complete(engine, _ahead(key))
        num_pieces = 0
        assert ahead.stats.num_tree_nodes > 128
        assert complete(engine, key).stats.num_first_tokens == 0


@with_settings(max_tokens=512, memory_mib=0)
def test_what_prefetches_have_read_is_remembered_within_the_same_bound(scripted: ScriptedBench) -> None:
    complete(scripted.engine, _ahead(_KEY))

    wait_until_soon(lambda: scripted.model.num_held == 0)


@with_settings(max_tokens=8000, max_context_tokens=4000, max_sequences=2)
def test_a_key_is_answered_from_the_near_context_until_the_whole_one_takes_no_long_time(
    scripted: ScriptedBench,
) -> None:
    scripted.engine._executor.estimate_prefill_s = lambda num_tokens: num_tokens / 1000  # type: ignore[method-assign]
    key = dataclasses.replace(_KEY, near_first=True)
    with open_scripted_bench(8000, max_context_tokens=256) as short:
        expected = complete(short.engine, _KEY)

    first, other = complete(scripted.engine, key), dataclasses.replace(key, prefix="# other\n" + _KEY.prefix)
    assert (first.text, first.stats.num_context_tokens) == (expected.text, expected.stats.num_context_tokens)
    assert first.stats.was_cut
    assert complete(scripted.engine, _ahead(dataclasses.replace(other, document="y"))).stats.was_cut
    wait_until_soon(lambda: not complete(scripted.engine, key).stats.was_cut)
    assert complete(scripted.engine, _KEY).stats.num_read_tokens == 0


@pytest.mark.parametrize(("seconds", "prefix"), [(0.29, _KEY.prefix), (3.0, _LINES + 300 * "n"), (3.0, "y = val")])
@with_settings(max_tokens=8000, max_context_tokens=4000)
def test_a_context_that_is_soon_read_or_has_a_long_end_is_whole_at_once(
    scripted: ScriptedBench, seconds: float, prefix: str
) -> None:
    scripted.engine._executor.estimate_prefill_s = lambda _: seconds  # type: ignore[method-assign,assignment]
    key = dataclasses.replace(_KEY, prefix=prefix, healing=Healing.GREEDY)
    own = complete(scripted.engine, dataclasses.replace(key, near_first=True))
    assert not own.stats.was_cut
    assert own.stats.num_context_tokens == complete(scripted.engine, key).stats.num_context_tokens
