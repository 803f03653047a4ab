from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trie_cache.trie import HotPrefixCache, Trie, Vocabulary

# Few letters, the greatest byte among them, so that prefixes meet; duplicates and empty tokens are wanted.
_texts = st.binary(max_size=5).map(lambda text: bytes(b"ab\xff\x00"[byte % 4] for byte in text))
_vocabularies = st.lists(_texts, max_size=30)


def _vocabulary_of(texts: list[bytes], num_special: int = 2, num_padding: int = 3) -> Vocabulary:
    tokens = dict(enumerate(texts, num_special))
    special_tokens = {f"<special {index}>": index for index in range(num_special)}
    return Vocabulary.from_tokens(tokens, special_tokens, num_rows=len(texts) + num_special + num_padding)


def _scan_extensions(vocabulary: Vocabulary, prefix: bytes) -> list[int]:
    return [index for index, text in enumerate(vocabulary.token_bytes) if text and text.startswith(prefix)]


@settings(max_examples=10 * settings().max_examples)
@given(_vocabularies, _texts)
def test_every_lookup_of_a_prefix_finds_what_a_scan_finds(texts: list[bytes], prefix: bytes) -> None:
    """Of tokens with equal bytes, the lower id comes first."""
    vocabulary = _vocabulary_of(texts)
    token_bytes, trie = vocabulary.token_bytes, Trie.build(vocabulary)
    extensions = sorted(_scan_extensions(vocabulary, prefix), key=lambda index: (token_bytes[index], index))
    ancestors = [i for i, text in enumerate(token_bytes) if text and prefix.startswith(text) and text != prefix]
    lo, hi = trie.find_interval(prefix)
    assert trie.order[lo:hi].tolist() == extensions
    assert {index for index, rank in enumerate(trie.rank.tolist()) if lo <= rank < hi} == set(extensions)
    assert trie.find_ancestors(prefix) == tuple(sorted(ancestors, key=lambda index: (len(token_bytes[index]), index)))
    assert not prefix or trie.find_ids(prefix) == [i for i, token in enumerate(token_bytes) if token == prefix]
    assert tuple(map(trie.spell, range(vocabulary.num_rows))) == token_bytes
    assert [each.flags.writeable for each in (trie.order, trie.rank)] == [False, False]


_MANY = [b"a" + bytes(letters) for size in (0, 1, 2) for letters in product(range(0, 250, 9), repeat=size)]


@given(_vocabularies, _texts)
@example(_MANY, b"a")  # so many that the children are cached
def test_children_are_the_bytes_that_follow_the_prefix_and_where_their_tokens_start(
    texts: list[bytes], prefix: bytes
) -> None:
    trie = Trie.build(_vocabulary_of(texts))
    for num_bytes in range(len(prefix) + 1):
        begun = sorted(text for text in texts if text and text.startswith(prefix[:num_bytes]))
        followers = [text[num_bytes] for text in begun if len(text) > num_bytes]
        interval = trie.find_interval(prefix[:num_bytes])
        children = trie.find_children(interval, num_bytes)
        assert children.num_exact == len(begun) - len(followers)
        assert children.bytes.tolist() == sorted(set(followers))
        assert children.starts.tolist() == [
            children.num_exact + followers.index(byte) for byte in sorted(set(followers))
        ]
        assert (trie.find_children(interval, num_bytes) is children) == (texts is _MANY)


@given(_vocabularies, st.integers(1, 3))
def test_iter_prefixes_gives_every_prefix_once_with_its_interval(texts: list[bytes], min_tokens: int) -> None:
    vocabulary = _vocabulary_of(texts)
    trie = Trie.build(vocabulary)
    prefixes = {text[:length] for text in texts for length in range(1, len(text) + 1)}
    wanted = [prefix for prefix in sorted(prefixes) if len(_scan_extensions(vocabulary, prefix)) >= min_tokens]
    assert sorted(trie.iter_prefixes(min_tokens)) == [(prefix, trie.find_interval(prefix)) for prefix in wanted]


_TRIE = Trie.build(Vocabulary.from_tokens(dict(enumerate([b"a", b"ab", b"abc", b"b", b"bc", b"c"])), {"<end>": 6}))
_words = st.text("ab ", max_size=4).map(str.encode)


@given(st.lists(_words, max_size=80), st.lists(_words, min_size=1, max_size=8), st.integers(0, 3), st.integers(1, 4))
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
