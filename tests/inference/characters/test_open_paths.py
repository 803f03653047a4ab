"""The cache of open paths: cached texts are found again, and memory is limited."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.characters.open_paths import (
    OpenPathsCache,
    find_canonical_open_paths,
    find_possible,
    split_text,
    split_whole_text,
)
from inference.errors import InvalidRequestError
from tests.support.character_oracles import can_be_text, is_text
from tests.support.toys import narrow_tokenizer

_TOY = narrow_tokenizer("qwen")


def _new_cache(max_bytes: int) -> OpenPathsCache:
    return OpenPathsCache(_TOY.encoder, _TOY.trie, find_canonical_open_paths, max_bytes)


def test_a_repeated_text_is_found_in_the_cache() -> None:
    cache = _new_cache(1_000_000)

    assert cache.find(b"as a1") is cache.find(b"as a1")


def test_the_least_recently_used_text_is_evicted_first() -> None:
    cache = _new_cache(20_000)
    first = cache.find(b"as")
    for number in range(100):
        assert cache.find(b"as") is first
        cache.find(b"s%d" % number)


@pytest.mark.parametrize("text", ["as " * 1_000, "中" * 1_000, "as"], ids=["words", "one long word", "short"])
def test_the_cache_stays_within_its_memory_limit(text: str) -> None:
    max_bytes = 200_000
    cache = _new_cache(max_bytes)
    cache.find(b"")
    tracemalloc.start()

    for number in range(60 if len(text) > 100 else 1_000):
        cache.find(f"{number} {text}".encode())

    num_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert num_bytes <= max_bytes + 200_000  # the encoder also caches short pre-tokens


def test_a_text_larger_than_the_cache_is_not_kept() -> None:
    cache = _new_cache(1_000)

    assert cache.find(b"as " * 1_000) is not cache.find(b"as " * 1_000)


def test_a_text_that_is_not_utf8_is_refused_each_time() -> None:
    cache = _new_cache(1_000_000)

    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=r"not UTF-8: invalid start byte at b'\\xff'"):
            cache.find(b"a\xffb")


@given(text=st.text(max_size=6), num_cut=st.integers(0, 3))
def test_a_text_that_stops_inside_a_character_keeps_its_bytes(text: str, num_cut: int) -> None:
    data = text.encode()[: len(text.encode()) - num_cut]

    characters, unfinished = split_text(data)

    assert characters.encode() + unfinished == data
    assert text.startswith(characters)
    assert len(unfinished) < 4


def test_a_text_is_split_before_the_first_bytes_that_are_not_utf8() -> None:
    assert split_whole_text(b"a\xffb") == ("a", b"\xffb")
    assert split_whole_text("aé".encode()[:-1]) == ("a", b"\xc3")
    assert split_whole_text(b"ab") == ("ab", b"")


@pytest.mark.parametrize("tail", [b"a", "é".encode()[:1], "€".encode()[:1], "€".encode()[:2], "😀".encode()[:3]])
def test_a_byte_is_possible_exactly_if_some_text_continues_with_it(tail: bytes) -> None:
    possible = find_possible(tail)

    assert possible.tolist() == [*(can_be_text(tail + bytes([byte])) for byte in range(256)), is_text(tail)]
