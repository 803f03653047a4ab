import pytest
from hypothesis import given
from hypothesis import strategies as st

from trie_cache.hot_prefixes import HotPrefixCache, build_allowed_set
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_TRIE = Trie.build(Vocabulary.from_tokens(dict(enumerate([b"a", b"ab", b"abc", b"b", b"bc", b"c"])), {"<end>": 6}))
_texts = st.text("ab ", max_size=4).map(str.encode)


@given(st.lists(_texts, max_size=80), _texts)
def test_the_allowed_set_equals_the_blog_posts_scan(texts: list[bytes], prefix: bytes) -> None:
    trie = Trie.build(Vocabulary.from_tokens(dict(enumerate(texts)), {"<end>": len(texts)}))
    scanned = [i for i, text in enumerate(texts) if text and (text.startswith(prefix) or prefix.startswith(text))]

    allowed = build_allowed_set(trie, prefix)

    assert sorted(allowed.ids.tolist()) == scanned
    assert [texts[i] for i in allowed.ids] == sorted(texts[i] for i in scanned)
    extensions = trie.order[allowed.interval.lo : allowed.interval.hi].tolist()
    assert [*allowed.ancestor_ids, *extensions] == allowed.ids.tolist()
    assert not allowed.ids.flags.writeable


@pytest.mark.parametrize(("num_tokens", "num_hits"), [(1000, 0), (1001, 1)])
def test_a_prefix_with_more_than_a_thousand_tokens_is_a_hit_at_the_first_lookup(num_tokens: int, num_hits: int) -> None:
    tokens = {index: b"a%d" % index for index in range(num_tokens)}
    cache = HotPrefixCache(Trie.build(Vocabulary.from_tokens(tokens, {})))

    cache.allowed(b"a")

    assert (cache.num_hits, cache.num_misses) == (num_hits, 1 - num_hits)


def test_the_second_lookup_is_a_hit_with_the_same_set() -> None:
    cache = HotPrefixCache(_TRIE)

    first = cache.allowed(b"ab")

    assert cache.allowed(b"ab") is first
    assert (cache.num_hits, cache.num_misses) == (1, 1)


def test_the_least_recently_used_prefix_is_evicted_first_and_a_hot_one_never() -> None:
    cache = HotPrefixCache(_TRIE, min_hot_tokens=3, max_recent=2)

    for prefix in (b"ab", b"b", b"ab", b"c", b"ab", b"a"):
        cache.allowed(prefix)
    assert (cache.num_hits, cache.num_misses) == (3, 3)

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
        assert found[:2] == built[:2]
    assert cache.num_hits + cache.num_misses == len(prefixes)
