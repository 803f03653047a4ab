"""The cache of open paths: cached texts are found again, and memory is limited."""

import tracemalloc

import pytest

from inference.characters.coverings.open_paths import OpenPathsCache, find_canonical_open_paths
from inference.errors import InvalidRequestError
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
        with pytest.raises(InvalidRequestError, match="not UTF-8"):
            cache.find(b"a\xff")
