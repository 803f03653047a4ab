import pytest
from hypothesis import given
from hypothesis import strategies as st

from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_TRIE = Trie.build(Vocabulary.from_tokens(dict(enumerate([b"a", b"ab", b"abc", b"b", b"bc", b"c"])), {"<end>": 6}))
_texts = st.text("ab ", max_size=4).map(str.encode)


@given(st.lists(_texts, max_size=80), st.lists(_texts, min_size=1, max_size=8), st.integers(0, 3), st.integers(1, 4))
def test_the_allowed_tokens_are_those_of_the_blog_posts_scan_whatever_is_cached(
    texts: list[bytes], prefixes: list[bytes], max_recent: int, min_hot_tokens: int
) -> None:
    trie = Trie.build(Vocabulary.from_tokens(dict(enumerate(texts)), {"<end>": len(texts)}))
    cache = HotPrefixCache(trie, min_hot_tokens, max_recent)
    for prefix in prefixes:
        scanned = [i for i, text in enumerate(texts) if text and (text.startswith(prefix) or prefix.startswith(text))]
        ids = cache.find(prefix)
        assert sorted(ids.tolist()) == scanned
        assert [texts[i] for i in ids] == sorted(texts[i] for i in scanned)
        assert not ids.flags.writeable


@pytest.mark.parametrize(("num_tokens", "is_hot"), [(1000, False), (1001, True)])
def test_the_set_of_a_prefix_with_more_than_a_thousand_tokens_is_never_evicted(num_tokens: int, is_hot: bool) -> None:
    tokens = {index: b"a%d" % index for index in range(num_tokens)}
    cache = HotPrefixCache(Trie.build(Vocabulary.from_tokens(tokens, {})), max_recent=0)

    assert (cache.find(b"a") is cache.find(b"a")) == is_hot


def test_the_least_recently_used_prefix_is_evicted_first_and_a_hot_one_never() -> None:
    cache = HotPrefixCache(_TRIE, min_hot_tokens=3, max_recent=2)
    first = {prefix: cache.find(prefix) for prefix in (b"ab", b"b", b"a")}

    for prefix in (b"ab", b"c"):
        cache.find(prefix)

    assert {prefix: cache.find(prefix) is found for prefix, found in first.items()} == {
        b"ab": True,
        b"b": False,
        b"a": True,
    }
