"""How figures come into pages, and that their age is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from docs.write_figures import PageFigures, list_missed, write_row, write_sentence

_FIGURES = {"ms": 1.26, "keys": 1450}


def _store(folder: Path, name: str, content: dict[str, Any]) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"parts": {}, "targets": []} | content))


def test_a_sentence_gets_its_figures_over_the_end_of_a_line() -> None:
    text = "Before. It takes 9.5\nms for 7 of the 1,200. After 3."
    assert write_sentence(text, "takes {ms:.1f} ms for {keys} of the {keys:,}.", _FIGURES) == (
        "Before. It takes 1.3\nms for 1450 of the 1,450. After 3."
    )


@pytest.mark.parametrize("text", ["It takes longer.", "It takes 1 ms. It takes 2 ms."])
def test_a_sentence_without_its_place_or_with_two_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="places"):
        write_sentence(text, "takes {ms:.1f} ms", _FIGURES)


def test_a_row_is_found_by_its_first_cell() -> None:
    text = "| a | 1 |\n| b | 2 |\n"
    assert write_row(text, "| b | {keys} |", _FIGURES) == "| a | 1 |\n| b | 1450 |\n"


def test_a_figure_that_no_part_has_is_an_error_and_one_of_a_part_that_was_not_measured_is_a_dash() -> None:
    with pytest.raises(KeyError, match="no part has the figure ms"):
        PageFigures({"one": {"figures": {}}}, is_complete=True)["ms"]
    assert f"{PageFigures({}, is_complete=False)['ms']:.1f}" == "–"


def test_missed_targets_are_listed_and_no_others(tmp_path: Path) -> None:
    targets = [
        {"figure": name, "meaning": f"the {name}", "limit": "≤ 1", "value": value, "is_met": is_met}
        for name, value, is_met in (("first", 2, False), ("second", 1, True), ("third", None, None))
    ]
    _store(tmp_path, "some", {"targets": targets})
    section = list_missed(tmp_path)
    assert "Of 2 targets that were measured, 1 are missed" in section
    assert "- `some`: the first: 2 (≤ 1)" in section
    assert "second" not in section
