import pytest

from benchmarks.corpora.sized_files import SizedFile, find_sized_files
from models.training.corpus import SourceFile


def _file(path: str, num_chars: int, char: str = "x") -> SourceFile:
    return SourceFile("lib", path, char * num_chars)


def test_the_nearest_files_are_taken() -> None:
    files = [_file("a", 93), _file("b", 101), _file("c", 150), _file("d", 108)]

    found = find_sized_files(files, (100,), 2, len)

    assert [(file.path, len(file.text), file.num_tokens) for file in found] == [("b", 101, 100), ("a", 93, 100)]


def test_files_are_joined_where_none_is_long_enough() -> None:
    files = [_file("a", 10), _file("b", 300), _file("c", 640), _file("d", 55)]

    [found] = find_sized_files(files, (1_000,), 2, len)

    assert found == SizedFile("c + b + d", "x" * 640 + "\n\n" + "x" * 300 + "\n\n" + "x" * 55, 1_000)


def test_files_with_other_line_ends_are_left_out() -> None:
    with pytest.raises(ValueError, match=r"the files have 0 tokens together; 100 are needed"):
        find_sized_files([_file("a", 100, "\r")], (100,), 1, len)
