"""Offsets within a line, in each of the three position encodings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol.types import PositionEncodingKind

from lsp_server.context import replace_surrogates
from lsp_server.documents import join_surrogates, num_units, split_line

_ENCODINGS = list(PositionEncodingKind)


@given(st.text("aé漢😀"), st.integers(0, 20), st.sampled_from(_ENCODINGS))
def test_text_before_an_offset_is_as_long_as_the_offset(
    line: str, num_chars: int, encoding: PositionEncodingKind
) -> None:
    before = line[:num_chars]
    assert split_line(line + "\r\n", num_units(before, encoding), encoding) == (before, line[num_chars:] + "\r\n")


@pytest.mark.parametrize("encoding", _ENCODINGS)
def test_an_offset_after_the_line_means_the_place_before_its_line_end(encoding: PositionEncodingKind) -> None:
    assert split_line("é\r\n", 99, encoding) == ("é", "\r\n")


def test_a_split_surrogate_pair_is_joined_again() -> None:
    before, after = split_line("a😀b", 2, PositionEncodingKind.Utf16)
    assert (before, after) == ("a\ud83d", "\ude00b")
    assert join_surrogates(before + after) == "a😀b"


def test_lone_surrogates_become_replacement_characters() -> None:
    assert replace_surrogates("a\ud83db😀\ude00") == "a\ufffdb😀\ufffd"
