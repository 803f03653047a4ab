import itertools
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given, settings

from inference.healing.covering import CoveringTree, Rule, build_covering, build_root_covering, find_crossing_interval
from inference.healing.heal_point import HealPoint, find_heal_point
from tests.support.tokenizer_folders import ALL_KINDS, any_tokenizer, is_judged
from tests.support.toys import (
    KINDS,
    NARROW_ALPHABET,
    ToyTokenizer,
    cut_texts,
    long_texts,
    narrow_tokenizer,
    toy_tokenizer,
)
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

all_kinds = pytest.mark.parametrize("kind", ALL_KINDS)
kinds = pytest.mark.parametrize("kind", KINDS)

Member = tuple[tuple[int, ...], int | None]  # a path and the token after it; None if the text ends

_MAX_CONTINUATION = 4  # a token goes at most two characters beyond the healed bytes; two more decide where it ends
_CONTINUATIONS = [
    "".join(letters)
    for length in range(_MAX_CONTINUATION + 1)
    for letters in itertools.product(NARROW_ALPHABET, repeat=length)
]

_FOREIGN_CONTINUATIONS = ("\r", "b", "B", "é", ".", "\t", "2", "/")  # characters that are not in the alphabet


def _build(toy: ToyTokenizer, text: str) -> tuple[HealPoint, CoveringTree]:
    """The covering tree, and the heal point that it begins at: that of the text, or after the common tokens."""
    point = find_heal_point(toy.encoder, text)
    covering = build_covering(toy.encoder, toy.trie, point)
    kept_ids, healed = point.kept_ids + covering.common_ids, point.healed[covering.num_common_bytes :]
    return replace(point, kept_ids=kept_ids, healed=healed, splits=()), covering


def _find_member(toy: ToyTokenizer, point: HealPoint, ids: tuple[int, ...]) -> Member:
    """Returns the finished text's tokens after the kept ones, up to the first that goes beyond the healed bytes."""
    ids = ids[len(point.kept_ids) :]
    for num_ids, token_id in enumerate(ids):
        if len(toy.join(ids[: num_ids + 1])) > len(point.healed):
            return ids[:num_ids], token_id
    return ids, None


def _iter_paths(covering: CoveringTree) -> Iterator[tuple[int, ...]]:
    tree = covering.tree.with_chain((0,))
    for crossing in covering.crossings:
        yield tuple(tree.branch_ids[branch] for branch in tree.find_path(crossing.node))


def _allows(toy: ToyTokenizer, covering: CoveringTree, member: Member) -> bool:
    path, token_id = member
    remaining = [
        crossing.remaining_bytes
        for crossing, other in zip(covering.crossings, _iter_paths(covering), strict=True)
        if other == path
    ]
    if token_id is None:
        return remaining == [b""]
    token = toy.vocabulary.token_bytes[token_id]
    return len(remaining) == 1 and token.startswith(remaining[0]) and token != remaining[0]


@all_kinds
@settings(max_examples=4 * settings().max_examples)
@given(cut=cut_texts())
def test_the_tokens_of_the_finished_text_take_one_crossing(kind: str, cut: tuple[str, str]) -> None:
    toy = any_tokenizer(kind)
    text, whole = cut[0], "".join(cut)
    assume(text and is_judged(kind, whole) and toy.encoder.normalize(whole).startswith(toy.encoder.normalize(text)))

    point, covering = _build(toy, text)

    assert _allows(toy, covering, _find_member(toy, point, toy.encode(whole)))


@all_kinds
@given(cut=cut_texts())
def test_the_kept_tokens_never_roll_back_as_text_is_typed(kind: str, cut: tuple[str, str]) -> None:
    """What a cache keeps between keystrokes stays right. Only a letter that a typed mark changes is new."""
    toy = any_tokenizer(kind)
    assume(cut[0])

    before, after = (_build(toy, text)[0].kept_ids for text in (cut[0], "".join(cut)))

    assert after[: len(before)] == before


def _narrow_texts(num_texts: int) -> list[str]:
    random = Random(3)
    return ["".join(random.choices(NARROW_ALPHABET, k=random.randint(1, 7))) for _ in range(num_texts)]


@kinds
def test_every_canonical_covering_is_allowed_by_brute_force(kind: str) -> None:
    toy = narrow_tokenizer(kind)
    for text in _narrow_texts(12):
        point, covering = _build(toy, text)
        members = {_find_member(toy, point, toy.encode(text + continuation)) for continuation in _CONTINUATIONS}

        forbidden = [member for member in members if not _allows(toy, covering, member)]

        assert not forbidden, f"{text!r}: {[(toy.join(path), token) for path, token in forbidden]}"


@kinds
def test_every_path_is_canonical_before_some_continuation_by_brute_force(kind: str) -> None:
    """So the superset is limited: only the last token of a member can be one that the tokenizer would not choose."""
    toy = narrow_tokenizer(kind)
    for text in _narrow_texts(25):
        point, covering = _build(toy, text)
        before = toy.join(point.kept_ids).decode()
        dummy_prefix = toy.encoder.find_dummy_prefix(text)

        for path in _iter_paths(covering):
            ids = point.kept_ids + path
            opened = (before + toy.join(path).decode()).removeprefix(dummy_prefix)
            after = (*_CONTINUATIONS, *_FOREIGN_CONTINUATIONS)
            assert any(toy.encode(opened + more)[: len(ids)] == ids for more in after), (text, path)


@kinds
@given(cut=cut_texts())
def test_no_token_string_is_counted_twice(kind: str, cut: tuple[str, str]) -> None:
    toy = toy_tokenizer(kind)

    _, covering = _build(toy, cut[0])

    paths = list(_iter_paths(covering))
    assert len(paths) == len(set(paths))
    assert all(crossing.rule is Rule.CROSS for crossing in covering.crossings)


@kinds
@given(cut=cut_texts())
def test_each_path_and_its_remaining_bytes_are_the_healed_bytes(kind: str, cut: tuple[str, str]) -> None:
    toy = toy_tokenizer(kind)

    point, covering = _build(toy, cut[0])

    for crossing, path in zip(covering.crossings, _iter_paths(covering), strict=True):
        assert toy.join(path) + crossing.remaining_bytes == point.healed


@kinds
@given(cut=cut_texts())
def test_the_text_can_always_end_at_the_cursor(kind: str, cut: tuple[str, str]) -> None:
    _, covering = _build(toy_tokenizer(kind), cut[0])

    assert any(crossing.remaining_bytes == b"" for crossing in covering.crossings)


@kinds
@given(cut=cut_texts())
def test_every_crossing_has_tokens_that_go_beyond_the_healed_bytes(kind: str, cut: tuple[str, str]) -> None:
    toy = toy_tokenizer(kind)

    _, covering = _build(toy, cut[0])

    assert all(find_crossing_interval(toy.trie, crossing.remaining_bytes).num_tokens for crossing in covering.crossings)


@kinds
@given(cut=cut_texts())
def test_tokens_of_a_crossing_start_with_the_remaining_bytes_and_are_longer(kind: str, cut: tuple[str, str]) -> None:
    toy = toy_tokenizer(kind)
    remaining_bytes = cut[0].encode()[-3:]

    lo, hi = find_crossing_interval(toy.trie, remaining_bytes)

    token_bytes = toy.vocabulary.token_bytes
    assert sorted(toy.trie.order[lo:hi].tolist()) == [
        index
        for index, token in enumerate(token_bytes)
        if token.startswith(remaining_bytes) and token != remaining_bytes
    ]


def test_a_word_that_its_next_letter_tokenizes_differently_is_covered() -> None:
    """`_num_p` is `_num|_p`, but `_num_padded` is `_num|_pad|ded`. The tokens differ before the cursor."""
    toy = toy_tokenizer("qwen")
    finished = next(
        word
        for word in ("_num_padded", "_wrapped", "_tokens", "_expand_tabs", "_indent_lines")
        if toy.encode(word)[: len(toy.encode(word[:-3]))] != toy.encode(word[:-3])
    )

    point, covering = _build(toy, finished[:-3])

    assert _allows(toy, covering, _find_member(toy, point, toy.encode(finished)))


def test_a_root_covering_has_one_crossing_and_no_branches() -> None:
    covering = build_root_covering(b"ab", Rule.SPELL)

    assert covering.tree.with_chain((5,)).branch_ids == ()
    assert [(crossing.node, crossing.remaining_bytes, crossing.rule) for crossing in covering.crossings] == [
        (None, b"ab", Rule.SPELL)
    ]


@kinds
@pytest.mark.parametrize("text", long_texts.values(), ids=long_texts)
def test_a_very_long_pre_token_has_a_small_covering_tree(kind: str, text: str) -> None:
    toy = toy_tokenizer(kind)

    point, covering = _build(toy, text)

    for continuation in ("x", " x", "e", "=", "文a", ";if(e)"):
        assert _allows(toy, covering, _find_member(toy, point, toy.encode(text + continuation))), continuation
    assert len(covering.tree.with_chain((0,)).branch_ids) < 800


def test_a_pre_token_that_no_merge_makes_is_covered_as_one_token_and_as_its_parts() -> None:
    toy = toy_tokenizer("llama3")
    texts_ = [f"x\n{token.decode()}" for token in toy.vocabulary.token_bytes[640:] if len(token) > 1]
    cases = [text for text in texts_ if toy.encoder.split(text)[-1].data == text[2:].encode()]
    assert len(cases) > 10
    for text in cases:
        point, covering = _build(toy, text)

        for continuation in ("(", "\n", " x", "x", ""):
            assert _allows(toy, covering, _find_member(toy, point, toy.encode(text + continuation))), (
                text,
                continuation,
            )


def test_the_byte_zero_can_continue_a_text() -> None:
    trie = Trie.build(Vocabulary.from_tokens({0: b"a", 1: b"a\x00", 2: b"ab", 3: b"a", 4: b"b"}, {}))

    lo, hi = find_crossing_interval(trie, b"a")

    assert trie.order[lo:hi].tolist() == [1, 2]
