"""Open paths: short texts are found again."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.characters.beam_covering import read_characters
from inference.characters.text_covering import (
    find_canonical_open_paths,
    find_possible,
    split_text,
)
from inference.errors import InvalidRequestError
from inference.healing.text_encoder import cache_short
from tests.support.character_oracles import can_be_text, is_text
from tests.support.toys import narrow_tokenizer

_TOY = narrow_tokenizer("qwen")


_find = cache_short(partial(find_canonical_open_paths, _TOY.encoder, _TOY.trie), 8)


def test_a_repeated_text_is_found_in_the_cache() -> None:
    assert _find(b"as a1") is _find(b"as a1")


def test_a_long_text_is_not_kept() -> None:
    assert _find(b"as " * 1_000) is not _find(b"as " * 1_000)


def test_a_text_that_is_not_utf8_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=r"not UTF-8: invalid start byte at b'\\xff'"):
            _find(b"a\xffb")


@given(text=st.text(max_size=6), num_cut=st.integers(0, 3))
def test_a_text_that_stops_inside_a_character_keeps_its_bytes(text: str, num_cut: int) -> None:
    data = text.encode()[: len(text.encode()) - num_cut]

    characters, unfinished = split_text(data)

    assert characters.encode() + unfinished == data
    assert text.startswith(characters)
    assert len(unfinished) < 4


def test_the_characters_of_a_text_end_before_the_first_bytes_that_are_not_utf8() -> None:
    assert [read_characters(data) for data in (b"a\xffb", "aé".encode()[:-1], b"ab")] == ["a", "a", "ab"]


@pytest.mark.parametrize("tail", [b"a", "é".encode()[:1], "€".encode()[:1], "€".encode()[:2], "😀".encode()[:3]])
def test_a_byte_is_possible_exactly_if_some_text_continues_with_it(tail: bytes) -> None:
    possible = find_possible(split_text(tail)[1])

    assert possible.tolist() == [*(can_be_text(tail + bytes([byte])) for byte in range(256)), is_text(tail)]
