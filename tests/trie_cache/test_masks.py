import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from trie_cache.masks import build_allowed_set
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_texts = st.text("ab ", max_size=4).map(str.encode)


def _ids_in_mask(mask: list[int]) -> list[int]:
    return [32 * word + bit for word, value in enumerate(mask) for bit in range(32) if value >> bit & 1]


@given(st.lists(_texts, max_size=80), _texts, st.integers(0, 70))
def test_the_allowed_set_equals_the_blog_posts_scan(texts: list[bytes], prefix: bytes, num_padding: int) -> None:
    vocabulary = Vocabulary.from_tokens(
        dict(enumerate(texts)), {"<end>": len(texts)}, num_rows=len(texts) + 1 + num_padding
    )
    scanned = [i for i, text in enumerate(texts) if text and (text.startswith(prefix) or prefix.startswith(text))]

    allowed = build_allowed_set(Trie.build(vocabulary), prefix)

    assert sorted(allowed.ids.tolist()) == scanned
    assert _ids_in_mask(allowed.mask.tolist()) == scanned
    assert len(allowed.mask) == -(-vocabulary.num_rows // 32)


def test_ids_are_in_the_order_of_their_bytes() -> None:
    texts = [b"sw", b"swing", b"s", b"swap", b"salad"]
    vocabulary = Vocabulary.from_tokens(dict(enumerate(texts)), {})

    allowed = build_allowed_set(Trie.build(vocabulary), b"sw")

    assert [texts[i] for i in allowed.ids] == [b"s", b"sw", b"swap", b"swing"]


def test_arrays_are_read_only() -> None:
    trie = Trie.build(Vocabulary.from_tokens({0: b"a", 1: b"ab"}, {}))

    for prefix in (b"", b"a", b"ab", b"x"):
        allowed = build_allowed_set(trie, prefix)
        assert not allowed.ids.flags.writeable
        assert not allowed.mask.flags.writeable


def test_a_mask_is_built_only_when_it_is_requested() -> None:
    num_rows = 1_000_000
    trie = Trie.build(Vocabulary.from_tokens({0: b"a", 1: b"ab"}, {}, num_rows=num_rows))
    tracemalloc.start()

    allowed = build_allowed_set(trie, b"ab")

    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < num_rows / 32
    assert allowed.mask.nbytes == num_rows / 8
