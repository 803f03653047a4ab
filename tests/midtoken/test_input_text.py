import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midtoken.input_text import (
    read_cursor,
    read_file,
    split_pieces,
    split_tail,
)
from midtoken.server_arguments import UsageError


def test_the_bytes_of_a_file_or_of_standard_input_are_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xff\r\n\x00")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xffpiped")))
    assert (read_file(str(path)), read_file("-")) == (b"\xff\r\n\x00", b"\xffpiped")
    with pytest.raises(UsageError, match=f"cannot read {tmp_path}: Is a directory"):
        read_file(str(tmp_path))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a:1:b.py"  # a name may have colons
    path.write_bytes("first\r\nzwei é\n\tthird".encode())
    return path


@pytest.mark.parametrize(
    ("place", "prefix"),
    [("2:1", "first\n"), ("2:7", "first\nzwei é"), ("1", "first"), ("3:3", "first\nzwei é\n\tt")],
)
def test_lines_and_columns_count_characters_from_one(place: str, prefix: str, source: Path) -> None:
    path, cursor = read_cursor(f"{source}:{place}")
    assert (path, cursor.prefix) == (source, prefix)
    assert cursor.prefix + cursor.suffix == source.read_text()


@pytest.mark.parametrize(
    ("text", "place", "prefix"),
    [
        ('a = "l\rr"\ntot\n', "2:4", 'a = "l\nr"\ntot'),
        ("a\r\nb\n", "1", "a"),
        ("a\rb\r", "2", "a\nb"),
    ],
)
def test_lines_of_a_file_are_those_of_an_editor(text: str, place: str, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(text.encode())
    assert read_cursor(f"{tmp_path}/a.py:{place}")[1].prefix == prefix


@pytest.mark.parametrize(
    ("cursor", "message"),
    [
        ("app.py", "is not FILE:LINE:COLUMN"),
        ("app.py:²", "is not FILE:LINE:COLUMN"),
        ("nowhere.py:1:1", "cannot read nowhere.py: No such file"),
        ("{folder}/latin.py:1:1", "not UTF-8 at byte 5"),
        ("{source}:9:1", "has 3 lines; there is no line 9"),
        ("{source}:0:1", "there is no line 0"),
        ("{source}:1:7", "has 5 characters; the column must be between 1 and 6"),
        ("{source}:1:0", "the column must be between 1 and 6"),
    ],
)
def test_an_invalid_cursor_is_refused_with_the_reason(source: Path, cursor: str, message: str) -> None:
    source.with_name("latin.py").write_bytes(b"# caf\xe9")
    with pytest.raises(UsageError, match=message):
        read_cursor(cursor.format(source=source, folder=source.parent))


@given(st.text().map(lambda text: text.encode(errors="ignore")), st.integers(4, 9))
def test_the_pieces_joined_are_the_text_and_split_no_character(text: bytes, num_bytes: int) -> None:
    pieces = list(split_pieces(text, num_bytes=num_bytes))
    assert b"".join(piece.text for piece in pieces) == text
    assert all(0 < len(piece.text) <= num_bytes and piece.text.decode() for piece in pieces)


@given(st.binary(), st.integers(1, 9))
def test_bytes_that_are_not_utf8_are_split_too(text: bytes, num_bytes: int) -> None:
    assert b"".join(piece.text for piece in split_pieces(text, num_bytes=num_bytes)) == text


def test_the_context_of_a_piece_is_the_text_before_it() -> None:
    pieces = [*split_pieces(b"abcdef", num_bytes=4), split_tail(b"abcdef", num_bytes=4)]
    shown = [(piece.context, piece.text) for piece in [*pieces, split_tail(b"ab")]]
    assert shown == [(b"", b"abcd"), (b"abcd", b"ef"), (b"ab", b"cdef"), (b"", b"ab")]


def test_the_context_is_limited_and_starts_at_a_character() -> None:
    *_, last = split_pieces("é".encode() * 100_000)
    assert 65_000 < len(last.context) <= 65_540
    assert last.context.decode()
