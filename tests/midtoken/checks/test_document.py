from pathlib import Path

import pytest

from midtoken.checks.check import Check, Mark
from midtoken.checks.document import check_document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def _check(path: Path, has_default_model: bool = True) -> list[Check]:
    return list(check_document(path, {}, has_default_model))


def test_an_ordinary_file_gets_suggestions(folder: Path) -> None:
    (folder / "a.py").write_text("x = 1\n")
    assert [check.mark for check in _check(folder / "a.py")] == [Mark.GOOD]


def test_an_excluded_file_gets_none_and_the_rule_is_named(folder: Path) -> None:
    (folder / "a.py").write_text("x = 1\n")
    (folder / ".midtokenignore").write_text("a.py\n")
    [check] = _check(folder / "a.py")
    assert (check.mark, check.what) == (
        Mark.WRONG,
        f"{folder / 'a.py'} is excluded: `.midtokenignore` line 1: `a.py`",
    )


def test_a_file_of_another_language_gets_none_from_the_default_model(folder: Path) -> None:
    (folder / "a.rs").write_text("fn main() {}\n")
    assert [check.mark for check in _check(folder / "a.rs")] == [Mark.WRONG]
    assert [check.mark for check in _check(folder / "a.rs", has_default_model=False)] == [Mark.GOOD]


def test_a_file_that_is_too_large_gets_none(folder: Path) -> None:
    (folder / "a.py").write_text("x" * 10_000_001)
    [check] = _check(folder / "a.py")
    assert (check.mark, check.what) == (Mark.WRONG, f"{folder / 'a.py'} has 10,000,001 characters")


def test_a_file_that_does_not_exist_yet_is_a_note(folder: Path) -> None:
    assert [check.mark for check in _check(folder / "a.py")] == [Mark.NOTE]
