from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest

from benchmarks.load import find_figures
from benchmarks.measures.load_editors import Attempt, LoadEditors, Outcome, Phase, PhaseResult


def _completed(num: int) -> list[Attempt]:
    return [Attempt(1.0, 1.5, Outcome.COMPLETED)] * num


def _phase(*by_editor: list[Attempt]) -> PhaseResult:
    return PhaseResult("phase", 10.0, by_editor)


def test_goodput_is_relative_to_the_capacity_and_refusals_are_those_of_open_loops() -> None:
    refused = [Attempt(1.0, 1.0 + seconds, Outcome.REFUSED) for seconds in (0.01, 0.02)]
    closed = _phase(_completed(60), _completed(40) + refused)
    at_capacity, above = _phase(_completed(40), _completed(40)), _phase(_completed(30), _completed(34))
    far_above, patient = _phase(_completed(2), _completed(38) + refused[:1]), _phase(refused)

    figures = find_figures([closed, at_capacity, above, far_above, patient])

    assert [figures[name] for name in ("capacity_per_s", "goodput_1", "goodput_1_3", "goodput_3")] == [
        10,
        0.8,
        0.64,
        0.4,
    ]
    assert [figures["num_refused"], figures["refused_ms_p99"]] == pytest.approx([3, 20], rel=0.05)  # of open loops


@contextmanager
def _open_pipes(num: int) -> Iterator[tuple[list[Connection], list[Connection]]]:
    """Our ends and theirs."""
    pairs = [Pipe() for _ in range(num)]
    yield [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
    for connection in [each for pair in pairs for each in pair]:
        connection.close()


async def _play(num_editors: int, num_processes: int, keys_per_s: float | None) -> list[Phase]:
    with _open_pipes(num_processes) as (ours, theirs):
        for connection in theirs:
            connection.send([])
        await LoadEditors(ours, num_editors, mean_gap_s=0.25).play("phase", 1.0, keys_per_s)
        return [connection.recv() for connection in theirs]


@pytest.mark.parametrize(
    ("keys_per_s", "numbers", "gap_scale"),
    [
        (20.0, [2, 2, 1], 1.0),  # each types four keys a second
        (4.0, [1, 0, 0], 1.0),
        (1.0, [1, 0, 0], 4.0),  # there is no editor that types less
        (80.0, [4, 3, 3], 0.5),  # all there are, and each types twice as fast
        (None, [4, 3, 3], None),
    ],
)
async def test_a_greater_load_is_more_editors_not_faster_ones(
    keys_per_s: float | None, numbers: list[int], gap_scale: float | None
) -> None:
    phases = await _play(10, 3, keys_per_s)

    assert [phase.num_editors for phase in phases] == numbers
    assert {phase.gap_scale for phase in phases} == {gap_scale}
