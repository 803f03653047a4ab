import random

from hypothesis import given
from hypothesis import strategies as st

from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

# Few letters, the greatest byte among them, so that prefixes meet; duplicates and empty tokens are wanted.
_texts = st.binary(max_size=5).map(lambda text: bytes(b"ab\xff\x00"[byte % 4] for byte in text))
_vocabularies = st.lists(_texts, max_size=30)


def _vocabulary_of(texts: list[bytes], num_special: int = 2, num_padding: int = 3) -> Vocabulary:
    tokens = dict(enumerate(texts, num_special))
    special_tokens = {f"<special {index}>": index for index in range(num_special)}
    return Vocabulary.from_tokens(tokens, special_tokens, num_rows=len(texts) + num_special + num_padding)


def _scan_extensions(vocabulary: Vocabulary, prefix: bytes) -> set[int]:
    return {index for index, text in enumerate(vocabulary.token_bytes) if text and text.startswith(prefix)}


def _scan_ancestors(vocabulary: Vocabulary, prefix: bytes) -> set[int]:
    return {
        index
        for index, text in enumerate(vocabulary.token_bytes)
        if text and prefix.startswith(text) and text != prefix
    }


@given(_vocabularies, _texts)
def test_every_lookup_of_a_prefix_finds_what_a_scan_finds(texts: list[bytes], prefix: bytes) -> None:
    vocabulary = _vocabulary_of(texts)
    trie = Trie.build(vocabulary)
    extensions = _scan_extensions(vocabulary, prefix)

    lo, hi = trie.find_interval(prefix)
    ancestors = trie.find_ancestors(prefix)

    assert sorted(trie.order[lo:hi].tolist()) == sorted(extensions)
    assert {index for index, rank in enumerate(trie.rank.tolist()) if lo <= rank < hi} == extensions
    assert len(ancestors) == len(set(ancestors))
    assert set(ancestors) == _scan_ancestors(vocabulary, prefix)
    lengths = [len(vocabulary.token_bytes[index]) for index in ancestors]
    assert lengths == sorted(lengths)
    if prefix:
        assert trie.find_ids(prefix) == [i for i, token in enumerate(vocabulary.token_bytes) if token == prefix]


@given(_vocabularies, _texts)
def test_children_are_the_bytes_that_follow_the_prefix_and_where_their_tokens_start(
    texts: list[bytes], prefix: bytes
) -> None:
    trie = Trie.build(_vocabulary_of(texts))
    interval = trie.find_interval(prefix)

    children = trie.find_children(interval, len(prefix))

    begun = sorted(text for text in texts if text and text.startswith(prefix))
    assert children.num_exact == sum(text == prefix for text in begun)
    followers = [text[len(prefix)] for text in begun if text != prefix]
    assert children.bytes.tolist() == sorted(set(followers))
    assert children.starts.tolist() == [children.num_exact + followers.index(byte) for byte in children.bytes.tolist()]


@given(st.integers(0, 2**32 - 1))
def test_children_of_a_prefix_with_many_tokens_are_computed_once_and_stay_right(seed: int) -> None:
    rng = random.Random(seed)
    texts = [b"a" + rng.randbytes(rng.randint(0, 2)) for _ in range(700)]
    trie = Trie.build(_vocabulary_of(texts))
    interval = trie.find_interval(b"a")

    first, again = trie.find_children(interval, 1), trie.find_children(interval, 1)

    assert first is again
    assert first.num_exact == texts.count(b"a")
    assert first.bytes.tolist() == sorted({text[1] for text in texts if len(text) > 1})
    assert trie.find_children(interval, 0).bytes.tolist() == [ord("a")]


@given(_vocabularies)
def test_spell_returns_each_tokens_bytes_and_nothing_for_other_rows(texts: list[bytes]) -> None:
    vocabulary = _vocabulary_of(texts)
    trie = Trie.build(vocabulary)

    assert tuple(map(trie.spell, range(vocabulary.num_rows))) == vocabulary.token_bytes


@given(_vocabularies, st.integers(1, 3))
def test_iter_prefixes_gives_every_prefix_once_with_its_interval(texts: list[bytes], min_tokens: int) -> None:
    vocabulary = _vocabulary_of(texts)
    trie = Trie.build(vocabulary)
    prefixes = {text[:length] for text in texts for length in range(1, len(text) + 1)}
    wanted = [prefix for prefix in sorted(prefixes) if len(_scan_extensions(vocabulary, prefix)) >= min_tokens]

    found = sorted(trie.iter_prefixes(min_tokens))

    assert found == [(prefix, trie.find_interval(prefix)) for prefix in wanted]


def test_tokens_with_equal_bytes_are_adjacent_with_the_lower_id_first() -> None:
    trie = Trie.build(_vocabulary_of([b"b", b"A", b"AB", b"A"], num_special=0))

    assert trie.order.tolist() == [1, 3, 2, 0]
    assert trie.find_ancestors(b"AB") == (1, 3)


def test_arrays_are_read_only() -> None:
    trie = Trie.build(_vocabulary_of([b"a"]))

    assert not trie.order.flags.writeable
    assert not trie.rank.flags.writeable


def test_all_prefixes_of_a_large_vocabulary_agree_with_the_definition() -> None:
    rng = random.Random(1)
    words = [bytes(rng.choices(b" etaoinsrh_(\n\xe4\xff", k=rng.randint(1, 9))) for _ in range(20_000)]
    vocabulary = _vocabulary_of([*words, *words[:500]])
    trie = Trie.build(vocabulary)
    extensions: dict[bytes, set[int]] = {}
    for index, text in enumerate(vocabulary.token_bytes):
        for length in range(1, len(text) + 1):
            extensions.setdefault(text[:length], set()).add(index)
    ids_of_text = {text: {i for i in found if vocabulary.token_bytes[i] == text} for text, found in extensions.items()}

    for prefix, wanted in extensions.items():
        lo, hi = trie.find_interval(prefix)
        assert set(trie.order[lo:hi].tolist()) == wanted
        ancestors = set().union(*(ids_of_text[prefix[:length]] for length in range(1, len(prefix))))
        assert set(trie.find_ancestors(prefix)) == ancestors
    assert len(extensions) > 40_000
