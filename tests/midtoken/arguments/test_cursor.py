"""A cursor written as FILE:LINE:COLUMN."""

from pathlib import Path

import pytest

from midtoken.arguments.cursor import read_cursor
from midtoken.errors import CursorError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_bytes("first\r\nzwei é\n\tthird".encode())
    return path


def test_column_one_is_before_the_first_character(source: Path) -> None:
    cursor = read_cursor(f"{source}:2:1")
    assert (cursor.prefix, cursor.suffix) == ("first\r\n", "zwei é\n\tthird")


def test_columns_count_characters_not_bytes(source: Path) -> None:
    cursor = read_cursor(f"{source}:2:7")
    assert (cursor.line_before, cursor.line_after) == ("zwei é", "")


def test_without_a_column_the_cursor_is_at_the_end_of_the_line(source: Path) -> None:
    cursor = read_cursor(f"{source}:1")
    assert (cursor.line_before, cursor.suffix[:2]) == ("first", "\r\n")


def test_prefix_and_suffix_are_the_whole_file(source: Path) -> None:
    cursor = read_cursor(f"{source}:3:3")
    assert (cursor.prefix + cursor.suffix).encode() == source.read_bytes()


def test_a_file_name_can_contain_colons(tmp_path: Path) -> None:
    path = tmp_path / "a:1:b.py"
    path.write_text("x = 1")
    assert read_cursor(f"{path}:1:2").prefix == "x"


@pytest.mark.parametrize(
    ("cursor", "message"),
    [
        ("app.py", "is not FILE:LINE:COLUMN"),
        ("app.py:²", "is not FILE:LINE:COLUMN"),
        ("nowhere.py:1:1", "cannot read nowhere.py: No such file"),
        ("{source}:9:1", "has 3 lines; there is no line 9"),
        ("{source}:0:1", "there is no line 0"),
        ("{source}:1:7", "has 5 characters; the column must be between 1 and 6"),
        ("{source}:1:0", "the column must be between 1 and 6"),
    ],
)
def test_an_invalid_cursor_is_refused_with_the_reason(source: Path, cursor: str, message: str) -> None:
    with pytest.raises(CursorError, match=message):
        read_cursor(cursor.format(source=source))


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"# caf\xe9")
    with pytest.raises(CursorError, match="not UTF-8 at byte 5"):
        read_cursor(f"{path}:1:1")
