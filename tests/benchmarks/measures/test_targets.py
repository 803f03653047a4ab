from benchmarks.measures.targets import Target, build_row

_LOW = Target("load", "goodput", "completed", at_least=0.9)
_HIGH = Target("keystrokes", "ms", "time", at_most=30)


def test_a_target_is_met_up_to_its_limit() -> None:
    assert [_LOW.is_met(value) for value in (0.89, 0.9, 5)] == [False, True, True]
    assert [_HIGH.is_met(value) for value in (31, 30, 0)] == [False, True, True]


def test_a_row_says_what_was_measured_and_whether_that_is_enough() -> None:
    assert build_row(_HIGH, 31.0) == {
        "benchmark": "keystrokes", "figure": "time", "target": "≤ 30", "measured": 31.0, "met": "no",
    }  # fmt: skip
    assert (build_row(_LOW, 1.0)["target"], build_row(_LOW, 1.0)["met"]) == ("≥ 0.9", "yes")


def test_a_figure_that_was_not_measured_is_neither_met_nor_missed() -> None:
    assert (build_row(_LOW, None)["measured"], build_row(_LOW, None)["met"]) == (None, None)
