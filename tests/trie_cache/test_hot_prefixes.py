import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.masks import build_allowed_set
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_TRIE = Trie.build(Vocabulary.from_tokens(dict(enumerate([b"a", b"ab", b"abc", b"b", b"bc", b"c"])), {"<end>": 6}))


def test_a_prefix_with_more_than_a_thousand_tokens_is_a_hit_at_the_first_lookup() -> None:
    tokens = {index: b"a%d" % index for index in range(1001)} | {1001: b"b"}
    cache = HotPrefixCache(Trie.build(Vocabulary.from_tokens(tokens, {})))

    cache.allowed(b"a")
    cache.allowed(b"b")

    assert (cache.num_hits, cache.num_misses) == (1, 1)


def test_a_prefix_with_a_thousand_tokens_is_not_cached_permanently() -> None:
    tokens = {index: b"a%d" % index for index in range(1000)}
    cache = HotPrefixCache(Trie.build(Vocabulary.from_tokens(tokens, {})))

    assert cache.num_hot == 1  # the empty prefix alone


def test_the_mask_of_a_hot_prefix_is_built_in_advance() -> None:
    num_rows = 1_000_000
    cache = HotPrefixCache(Trie.build(Vocabulary.from_tokens({0: b"a", 1: b"ab"}, {}, num_rows=num_rows)), 2)
    tracemalloc.start()

    mask = cache.allowed(b"a").mask

    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert mask.nbytes == num_rows / 8
    assert peak_bytes < mask.nbytes


def test_the_second_lookup_is_a_hit_with_the_same_set() -> None:
    cache = HotPrefixCache(_TRIE)

    first = cache.allowed(b"ab")

    assert cache.allowed(b"ab") is first
    assert (cache.num_hits, cache.num_misses) == (1, 1)


def test_the_least_recently_used_prefix_is_evicted_first() -> None:
    cache = HotPrefixCache(_TRIE, max_recent=2)

    for prefix in (b"a", b"b", b"a", b"c", b"a"):
        cache.allowed(prefix)
    assert (cache.num_hits, cache.num_misses) == (2, 3)

    cache.allowed(b"b")
    assert cache.num_misses == 4


@given(st.lists(st.text("abc", max_size=3).map(str.encode), max_size=30), st.integers(0, 3), st.integers(1, 4))
def test_the_set_is_the_same_with_and_without_the_cache(
    prefixes: list[bytes], max_recent: int, min_hot_tokens: int
) -> None:
    cache = HotPrefixCache(_TRIE, min_hot_tokens, max_recent)

    for prefix in prefixes:
        found, built = cache.allowed(prefix), build_allowed_set(_TRIE, prefix)
        assert found.ids.tolist() == built.ids.tolist()
        assert found.mask.tolist() == built.mask.tolist()
    assert cache.num_hits + cache.num_misses == len(prefixes)
