import pytest

from benchmarks.baselines.contestants.line_protocol import Answer
from benchmarks.contestants import Outcome, build_row
from benchmarks.corpora.cuts import Cut, Visit

_VISIT = Visit(Cut("identifier", "file.py", "x = no", "de", " + 1\n"), "x = no", " + 1\n")


def _outcome(first_ms: float, line: str = "de") -> Outcome:
    return Outcome(_VISIT, Answer(line, 100.0, 200.0), Answer(line, first_ms, 10 * first_ms))


@pytest.mark.parametrize(
    ("line", "is_right"),
    [("de", True), ("de + 1", True), ("de(", True), ("des", False), ("d", False), ("", False), (" de", False)],
)
def test_right_is_exactly_the_rest_of_the_identifier(line: str, is_right: bool) -> None:
    assert _outcome(1.0, line).is_right is is_right


def test_a_time_is_the_median_over_cursors_of_the_median_over_repeats() -> None:
    runs = [[_outcome(1.0), _outcome(5.0), _outcome(9.0)], [_outcome(1.0), _outcome(7.0), _outcome(900.0)]]
    row = build_row("theirs", [*runs, [_outcome(2.0), _outcome(6.0), _outcome(10.0)]])

    assert (row["first_text_ms"], row["line_ms"]) == (6.0, 60.0)
    assert row["± first_text_ms"] == 2.0  # the repeats' medians are 5, 7 and 6
