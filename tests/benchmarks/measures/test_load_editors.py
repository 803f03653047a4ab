import pytest

from benchmarks.load import find_figures
from benchmarks.measures.load_editors import Attempt, Outcome, PhaseResult


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
