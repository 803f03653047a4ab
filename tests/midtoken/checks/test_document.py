from pathlib import Path

import pytest

from lsp_server.documents import MAX_CHARS
from midtoken.checks.check import Mark
from midtoken.checks.document import check_document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def _check(path: Path, languages: tuple[str, ...] | None = ("python",)) -> tuple[Mark, str]:
    check = check_document(path, {}, languages)
    return check.mark, check.what


def test_an_ordinary_file_gets_suggestions(folder: Path) -> None:
    (folder / "a.py").write_text("x = 1\n")
    assert _check(folder / "a.py")[0] is Mark.GOOD


def test_an_excluded_file_gets_none_and_the_rule_is_named(folder: Path) -> None:
    (folder / "a.py").write_text("x = 1\n")
    (folder / ".midtokenignore").write_text("a.py\n")
    rule = "nothing of this file is sent: `.midtokenignore` line 1: `a.py`"
    assert _check(folder / "a.py") == (Mark.WRONG, f"{folder / 'a.py'} gets no suggestions (excluded): {rule}")


def test_a_file_of_another_language_gets_none_from_a_model_that_does_not_know_it(folder: Path) -> None:
    (folder / "a.rs").write_text("fn main() {}\n")
    mark, what = _check(folder / "a.rs")
    assert (mark, "the default model knows only python" in what) == (Mark.WRONG, True)
    assert _check(folder / "a.rs", languages=None)[0] is Mark.GOOD


def test_a_file_that_is_too_large_gets_none(folder: Path) -> None:
    (folder / "a.py").write_text("x" * (MAX_CHARS + 1))
    mark, what = _check(folder / "a.py")
    assert (mark, "gets no suggestions (too_large)" in what) == (Mark.WRONG, True)


def test_a_file_that_is_no_text_gets_none(folder: Path) -> None:
    (folder / "a.py").write_bytes(b"\xff\xfe")
    assert _check(folder / "a.py")[0] is Mark.WRONG
    (folder / "b.py").mkdir()
    assert _check(folder / "b.py") == (Mark.WRONG, f"{folder / 'b.py'} cannot be read: Is a directory")


def test_a_file_that_does_not_exist_yet_is_a_note(folder: Path) -> None:
    assert _check(folder / "a.py")[0] is Mark.NOTE
