from benchmarks.baselines.contestants.line_protocol import Answer
from benchmarks.contestants import Outcome, build_row
from benchmarks.corpora.cuts import Cut, Visit

_VISIT = Visit(Cut("identifier", "file.py", "x = no", "de", " + 1\n"), "x = no", " + 1\n")


def _outcome(first_ms: float) -> Outcome:
    return Outcome(_VISIT, Answer("de", 100.0, 200.0), Answer("de(", first_ms, 10 * first_ms))


def test_a_time_is_the_median_over_cursors_of_the_median_over_repeats() -> None:
    runs = [[_outcome(1.0), _outcome(5.0), _outcome(9.0)], [_outcome(1.0), _outcome(7.0), _outcome(900.0)]]
    row = build_row("theirs", [*runs, [_outcome(2.0), _outcome(6.0), _outcome(10.0)]])

    assert (row["first_text_ms"], row["line_ms"]) == (6.0, 60.0)
    assert (row["cold_line_ms"], row["right"]) == (200.0, 100.0)
    assert row["± first_text_ms"] == 2.0  # the repeats' medians are 5, 7 and 6
