import dataclasses

import pytest

from inference.engine.local_executor import PrefillSpeed
from inference.model.language_model import SequenceInput
from inference.protocol.completion import CompletionRequest
from tests.support.engine_bench import UNBOUNDED, begin_job, build_executor
from tests.support.scripted_model import CountingCache, ScriptedModel


def test_a_chosen_path_without_keys_and_values_is_read_with_the_chosen_token() -> None:
    """As in a copy of the first tokens of a sequence: it knows the logits after the others, and no more."""
    executor = build_executor()
    job = begin_job(executor, CompletionRequest("x = nam", max_tokens=5, extent=UNBOUNDED))
    [running] = executor._running[job]
    sequence, tree = running.sequence, running.tree
    part = SequenceInput(sequence.cache, tree)
    sequence.absorb(part, executor.model.forward([part])[0])
    for node in sequence._nodes.values():
        node.stored = None
    running.tree = dataclasses.replace(tree, chain_ids=())

    executor.step([job], is_shared=False)

    [candidate] = job.candidates
    assert len(candidate.token_ids) > 2
    assert isinstance(sequence.cache, CountingCache)
    assert sequence.cache.token_ids == [*job.prompt.context_ids, *candidate.token_ids[:-1]]
    assert isinstance(executor.model, ScriptedModel)
    assert executor.model.step_sizes == [1, 1]


def _note(*passes: tuple[int, float]) -> PrefillSpeed:
    speed = PrefillSpeed()
    for num_rows, seconds in passes:
        speed.note(num_rows, seconds)
    return speed


def test_the_speed_follows_the_passes() -> None:
    assert _note((15, 1.0)).find_max_rows() == _note().find_max_rows()  # a small pass says nothing
    assert _note((100, 1.0)).find_max_rows() == 100
    assert 50 < _note((100, 1.0), (100, 2.0)).find_max_rows() < 100
    later = _note((100, 1.0), *[(200, 4.0)] * 100, (16, 1.0))  # a small one says less
    assert later.find_max_rows() == pytest.approx(50, rel=0.5)


@pytest.mark.parametrize(
    ("seconds_per_row", "expected"), [(None, 16), (0.0, 512), (0.001, 512), (0.01, 100), (0.2, 16)]
)
def test_a_step_takes_a_second_but_never_reads_very_few_or_very_many(
    seconds_per_row: float | None, expected: int
) -> None:
    speed = PrefillSpeed()
    if seconds_per_row is not None:
        speed.note(64, 64 * seconds_per_row)

    assert speed.find_max_rows() == expected
    for is_shared in (False, True):  # nobody waits for a prefetch's step
        assert speed.find_max_rows(True, is_shared) == max(expected // 8, 16)


def test_a_step_is_short_while_other_people_wait() -> None:
    speed = PrefillSpeed()
    speed.note(64, 0.064)
    assert (speed.find_max_rows(), speed.find_max_rows(is_shared=True)) == (512, 30)
