"""The models that `midtoken models` recommends."""

from benchmarks.measures.report import read_rows
from midtoken.commands.models import RECOMMENDED


def test_the_recommended_models_are_of_families_that_are_right() -> None:
    right = {row.get("family", row.get("name")) for row in read_rows("models") if row["outcome"] == "right"}
    assert {each.family for each in RECOMMENDED} <= right
