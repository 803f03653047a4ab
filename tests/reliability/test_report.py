"""The report of the rows."""

import json
from pathlib import Path

import pytest

from benchmarks.measures.report import Target
from tests.support.reliability import Reliability, find_growth

_TARGETS = (Target("first", "the first", at_most=1), Target("second", "the second", at_most=1))


def test_a_row_keeps_what_other_rows_have_reported(tmp_path: Path) -> None:
    reliability = Reliability(True, tmp_path)
    reliability.record({"first": 1}, [{"fault": "a", "runs": 1}, {"fault": "b", "runs": 1}], _TARGETS)
    reliability.record({"second": 2}, [{"fault": "b", "runs": 2}], _TARGETS)
    report = json.loads((tmp_path / "reliability.json").read_text())
    assert report["figures"] == {"first": 1, "second": 2}
    assert report["rows"][:2] == [{"fault": "a", "runs": 1}, {"fault": "b", "runs": 2}]
    assert [row["met"] for row in report["rows"][2:]] == ["yes", "no"]


def test_the_short_form_reports_nothing(tmp_path: Path) -> None:
    Reliability(False, tmp_path).record({"first": 1})
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("sizes", "growth"), [([9, 9, 9, 1, 1, 1, 1, 1, 1], 0), ([1, 2, 3, 4, 5, 6, 7, 8, 9], 3)])
def test_only_what_grows_to_the_end_has_grown(sizes: list[float], growth: float) -> None:
    assert find_growth(sizes) == growth
