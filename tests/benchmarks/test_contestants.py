import pytest

from benchmarks.baselines.contestants.line_protocol import Answer
from benchmarks.contestants import Outcome, Runs, build_row
from benchmarks.corpora.cuts import Cut, Visit

_VISIT = Visit(Cut("identifier", "file.py", "x = no", "de", " + 1\n"), "x = no", " + 1\n")


def _outcome(first_ms: float, line: str = "de") -> Outcome:
    return Outcome(_VISIT, Answer(line, 100.0, 200.0), Answer(line, first_ms, 10 * first_ms))


def _row(runs: Runs, ours: Runs) -> dict[str, object]:
    return dict(build_row("theirs", {"theirs": runs, "ours": ours}, "ours"))


@pytest.mark.parametrize(
    ("line", "is_right"),
    [("de", True), ("de + 1", True), ("de(", True), ("des", False), ("d", False), ("", False), (" de", False)],
)
def test_right_is_exactly_the_rest_of_the_identifier(line: str, is_right: bool) -> None:
    assert _outcome(1.0, line).is_right is is_right


def test_a_time_is_the_median_over_cursors_of_the_median_over_repeats() -> None:
    runs = [[_outcome(1.0), _outcome(5.0), _outcome(9.0)], [_outcome(1.0), _outcome(7.0), _outcome(900.0)]]
    row = _row([*runs, [_outcome(2.0), _outcome(6.0), _outcome(10.0)]], runs)

    assert (row["first text ms"], row["line ms"]) == (6.0, 60.0)
    assert row["± first"] == 2.0  # the repeats' medians are 5, 7 and 6


def test_right_completions_are_compared_at_the_same_cursors() -> None:
    theirs = [[_outcome(1.0), _outcome(1.0, "no"), _outcome(1.0, "no"), _outcome(1.0)]]
    ours = [[_outcome(1.0), _outcome(1.0), _outcome(1.0), _outcome(1.0, "no")]]
    row = _row(theirs, ours)

    assert (row["right %"], row["to midtoken"]) == (50.0, -25.0)
    assert row["± (95 %)"] == pytest.approx(1.96 * 82.9156 / 2, rel=1e-4)
