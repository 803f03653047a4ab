import math

import pytest

from benchmarks.measures.load.editor import Attempt, Outcome
from benchmarks.measures.load.rows import LoadResult, PhaseResult


def _completed(num: int, first_text_s: float | None = 0.01) -> list[Attempt]:
    return [Attempt(1.0, None if first_text_s is None else 1.0 + first_text_s, 1.5, Outcome.COMPLETED)] * num


def _phase(*by_editor: list[Attempt], duration_s: float = 10.0) -> PhaseResult:
    return PhaseResult("phase", duration_s, by_editor)


def test_an_editors_share_is_relative_to_the_mean_of_all() -> None:
    superseded = [Attempt(1.0, 1.1, 1.2, Outcome.SUPERSEDED)] * 7

    assert _phase(_completed(1) + superseded, _completed(3), _completed(2)).shares == [0.5, 1.5, 1.0]
    assert _phase(superseded, superseded).shares == [0.0, 0.0]


def test_waits_are_those_of_requests_that_got_text() -> None:
    phase = _phase(_completed(1, 0.02) + _completed(1, None), [Attempt(2.0, None, 2.03, Outcome.REFUSED)])

    assert phase.first_text_ms == [pytest.approx(20)]
    assert phase.refused_ms == [pytest.approx(30)]


def test_goodput_is_relative_to_the_capacity() -> None:
    closed = [_phase(_completed(120)), _phase(_completed(60), _completed(40))]  # the last one is that of all editors
    at_capacity = _phase(_completed(40), _completed(40))
    above = _phase(_completed(30), _completed(34))
    far_above = _phase(_completed(2), _completed(38))

    figures = LoadResult(closed, [at_capacity], (at_capacity, above, far_above), at_capacity).find_figures()

    assert [figures[name] for name in ("capacity_per_s", "goodput_1", "goodput_1_3", "goodput_3", "least_share")] == [
        10, 0.8, 0.64, 0.4, 0.1
    ]  # fmt: skip
    assert (figures["refused_ms_p99"], figures["num_failed"]) == (None, 0)


def test_the_times_of_refusals_are_those_of_all_open_loops() -> None:
    refused = [Attempt(1.0, None, 1.0 + seconds, Outcome.REFUSED) for seconds in (0.01, 0.02)]
    phase = _phase(_completed(1))

    figures = LoadResult([phase], [phase], (phase, phase, _phase(refused[:1])), _phase(refused)).find_figures()

    assert figures["num_refused"] == 3
    assert figures["refused_ms_p99"] == pytest.approx(20, rel=0.05)


def test_the_worst_round_counts_for_requests_at_once() -> None:
    refused = [Attempt(1.0, None, 1.1, Outcome.REFUSED)]
    even = _phase(_completed(1, 0.1), _completed(1, 0.1), _completed(1, 0.2))
    uneven = _phase(_completed(1, 0.1), _completed(1, 0.1), _completed(1, 0.5), refused)
    at_capacity = _phase(_completed(1))

    figures = LoadResult([at_capacity], [even, uneven], (at_capacity,) * 3, at_capacity).find_figures()
    lost = LoadResult([at_capacity], [_phase(refused)], (at_capacity,) * 3, at_capacity).find_figures()

    assert figures["at_once_lost"] == lost["at_once_lost"] == 1
    assert figures["at_once_ratio"] == pytest.approx(5)
    assert lost["at_once_ratio"] == math.inf
