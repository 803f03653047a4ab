"""How figures come into pages, and that their age is known."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from docs.write_figures import PageFigures, describe_age, list_missed, write_figures, write_row, write_sentence

_FIGURES = {"ms": 1.26, "keys": 1450}


def _store(folder: Path, name: str, content: dict[str, Any]) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"parts": {}, "targets": []} | content))


def test_a_sentence_gets_its_figures_over_the_end_of_a_line() -> None:
    text = "Before. It takes 9.5\nms for 7 of the 1,200. After 3."
    assert write_sentence(text, "takes {ms:.1f} ms for {keys} of the {keys:,}.", _FIGURES) == (
        "Before. It takes 1.3\nms for 1450 of the 1,450. After 3."
    )


def test_a_figure_before_a_full_stop_is_written_whole() -> None:
    assert write_sentence("It takes 1.5. So", "It takes {ms:.1f}. So", _FIGURES) == "It takes 1.3. So"


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


def test_it_is_known_which_parts_a_page_has_figures_of() -> None:
    figures = PageFigures({"one": {"figures": {"a": 1}}, "two": {"figures": {"b": 2}}}, is_complete=True)
    write_row("| x | 0 |", "| x | {b} |", figures)
    assert figures.used == {"two"}


def test_missed_targets_are_listed_and_no_others(tmp_path: Path) -> None:
    targets = [
        {"figure": name, "meaning": f"the {name}", "limit": "≤ 1", "value": value, "is_met": is_met}
        for name, value, is_met in (("first", 2, False), ("second", 1, True), ("third", None, None))
    ]
    _store(tmp_path, "some", {"targets": targets})
    section = list_missed(tmp_path)
    assert "Of 2 targets that were measured, 1 are missed" in section
    assert "| `some` | the first | ≤ 1 | 2 |" in section
    assert "second" not in section


def test_the_section_of_missed_targets_ends_at_the_next_heading(tmp_path: Path) -> None:
    page = "docs/measured.md"
    text = (Path(__file__).parents[2] / page).read_text()
    written, _ = write_figures(page, f"{text}\n## After\n\nKept.\n", tmp_path)
    assert "Of 0 targets" in written
    assert written.endswith("\n## After\n\nKept.\n")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_a_part_is_old_when_its_code_has_changed_and_its_commit_must_exist(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    for path in ("benchmarks/some.py", "docs/page.md"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("1")
        _git(tmp_path, "add", "-A")
        _git(tmp_path, "commit", "-qm", path)
    first, second = _git(tmp_path, "rev-list", "--reverse", "HEAD").split()

    def find_age(benchmark: str, commit: str) -> str:
        return describe_age(benchmark, {"commit": commit, "date": "2026-11-28T00:00:00"}, tmp_path) or ""

    assert find_age("some", first) == ""  # only a page has changed
    assert "differed" in find_age("some", f"{second}+")
    assert "not in the repository" in find_age("some", "0123456789")
    (tmp_path / "benchmarks/some.py").write_text("2")
    _git(tmp_path, "commit", "-qam", "changed")
    assert find_age("some", second).startswith("1 commits since")
    assert find_age("other", second) == ""
