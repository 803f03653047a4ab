"""A file that an argument names."""

import io
import sys
from pathlib import Path

import pytest

from midtoken.arguments.text_file import read_file
from midtoken.errors import UnreadableFileError


def test_the_bytes_of_the_file_are_returned(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xff\r\n\x00")
    assert read_file(str(path)) == b"\xff\r\n\x00"


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xffpiped")))
    assert read_file("-") == b"\xffpiped"


def test_an_unreadable_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match=f"cannot read {tmp_path}: Is a directory"):
        read_file(str(tmp_path))
