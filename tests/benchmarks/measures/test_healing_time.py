import pytest

from benchmarks.measures.healing_time import HealingTimes, build_healing_figures


def test_the_figures_are_those_of_all_keys_and_of_the_longest_text() -> None:
    start = HealingTimes("start", [0.1, 0.2, 0.3], [1.0] * 99)
    end = HealingTimes("end", [30.0, 90.0, 60.0], [1.0] * 99 + [5.0, 5.0])

    figures = build_healing_figures([start, end])

    assert figures == {"healing_ms_p99_152k": pytest.approx(1.04), "healing_cold_ms_p50_152k": 60.0}
    assert (end.build_row()["cold ms"], end.build_row()["slowest ms"]) == (60.0, 5.0)
