"""The report of the rows."""

from pathlib import Path

import pytest

from benchmarks.measures.report import read_figures, read_rows
from tests.support.reliability import Reliability, find_growth


def test_a_part_keeps_what_other_parts_have_reported(tmp_path: Path) -> None:
    reliability = Reliability(True, tmp_path)
    reliability.record("races", {"races_wrong": 1}, [{"fault": "a", "runs": 1}])
    reliability.record("texts", {"texts_wrong": 2}, [{"fault": "b", "runs": 2}])
    assert read_figures("reliability", tmp_path) == {"races_wrong": 1, "texts_wrong": 2}
    assert read_rows("reliability", tmp_path) == [{"fault": "a", "runs": 1}, {"fault": "b", "runs": 2}]


def test_the_short_form_reports_nothing(tmp_path: Path) -> None:
    Reliability(False, tmp_path).record("races", {"races_wrong": 1})
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("sizes", "growth"), [([9, 9, 9, 1, 1, 1, 1, 1, 1], 0), ([1, 2, 3, 4, 5, 6, 7, 8, 9], 3)])
def test_only_what_grows_to_the_end_has_grown(sizes: list[float], growth: float) -> None:
    assert find_growth(sizes) == growth
