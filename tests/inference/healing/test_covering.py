import itertools
from random import Random

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from inference.healing.covering import Rule, find_crossing_interval
from inference.healing.heal_point import find_heal_point
from tests.support.coverings import allows, build_after_common, find_member, iter_paths
from tests.support.tokenizer_folders import ALL_KINDS, any_tokenizer, is_judged
from tests.support.toys import (
    KINDS,
    NARROW_ALPHABET,
    cut_texts,
    long_texts,
    narrow_tokenizer,
    texts,
    toy_tokenizer,
)
from trie_cache.trie import Trie, Vocabulary

all_kinds = pytest.mark.parametrize("kind", ALL_KINDS)
kinds = pytest.mark.parametrize("kind", KINDS)

_MAX_CONTINUATION = 4  # a token goes at most two characters beyond the healed bytes; two more decide where it ends
_CONTINUATIONS = [
    "".join(letters)
    for length in range(_MAX_CONTINUATION + 1)
    for letters in itertools.product(NARROW_ALPHABET, repeat=length)
]

_FOREIGN_CONTINUATIONS = ("\r", "b", "B", "é", ".", "\t", "2", "/")  # characters that are not in the alphabet


@all_kinds
@settings(max_examples=4 * settings().max_examples)
@given(cut=cut_texts())
@example(cut=("ae", "\u0301"))  # NFC joins the last two; a token may begin before them
@example(cut=("they'r", "e"))  # the next character joins what is further back, for one kind or another
@example(cut=("we'l", "l"))
@example(cut=("don'", "t"))
@example(cut=("x12", "3"))
@example(cut=("x\n  ", "\n"))
@example(cut=("x = 1\n   ", "   y"))  # an added text is begun, of one kind or another
@example(cut=("x </ta", "ble>"))
@example(cut=("(retu", "rn"))
@example(cut=("x\n\t", "\t\tx"))
def test_the_finished_text_begins_with_the_kept_tokens_and_takes_one_crossing(kind: str, cut: tuple[str, str]) -> None:
    toy = any_tokenizer(kind)
    text, whole = cut[0], "".join(cut)
    assume(text and is_judged(kind, whole))
    point, covering = build_after_common(toy, text)
    ids = toy.encode(whole)
    assert ids[: len(point.kept_ids)] == point.kept_ids
    if toy.encoder.normalize(whole).startswith(toy.encoder.normalize(text)):
        assert allows(toy, covering, find_member(toy, point, ids))


@all_kinds
@given(cut=cut_texts())
def test_the_kept_tokens_never_roll_back_as_text_is_typed(kind: str, cut: tuple[str, str]) -> None:
    """What a cache keeps between keystrokes stays right. Only a letter that a typed mark changes is new."""
    toy = any_tokenizer(kind)
    assume(cut[0])

    before, after = (build_after_common(toy, text)[0].kept_ids for text in (cut[0], "".join(cut)))

    assert after[: len(before)] == before


def _narrow_texts(num_texts: int) -> list[str]:
    random = Random(3)
    return ["".join(random.choices(NARROW_ALPHABET, k=random.randint(1, 7))) for _ in range(num_texts)]


@kinds
def test_every_canonical_covering_is_allowed_by_brute_force(kind: str) -> None:
    toy = narrow_tokenizer(kind)
    for text in _narrow_texts(12):
        point, covering = build_after_common(toy, text)
        members = {find_member(toy, point, toy.encode(text + continuation)) for continuation in _CONTINUATIONS}

        forbidden = [member for member in members if not allows(toy, covering, member)]

        assert not forbidden, f"{text!r}: {[(toy.join(path), token) for path, token in forbidden]}"


@kinds
def test_every_path_is_canonical_before_some_continuation_by_brute_force(kind: str) -> None:
    """So the superset is limited: only the last token of a member can be one that the tokenizer would not choose."""
    toy = narrow_tokenizer(kind)
    for text in _narrow_texts(25):
        point, covering = build_after_common(toy, text)
        before = toy.join(point.kept_ids).decode()
        dummy_prefix = toy.encoder.find_dummy_prefix(text)

        for path in iter_paths(covering):
            ids = point.kept_ids + path
            opened = (before + toy.join(path).decode()).removeprefix(dummy_prefix)
            after = (*_CONTINUATIONS, *_FOREIGN_CONTINUATIONS)
            assert any(toy.encode(opened + more)[: len(ids)] == ids for more in after), (text, path)


@kinds
@given(text=texts)
def test_each_crossing_has_a_path_of_its_own_and_its_remaining_bytes_have_tokens_that_go_beyond_them(
    kind: str, text: str
) -> None:
    """So no token string is counted twice. One crossing is at the cursor, where the text can end."""
    toy = toy_tokenizer(kind)
    point, covering = build_after_common(toy, text)
    paths = list(iter_paths(covering))
    remaining = [crossing.remaining_bytes for crossing in covering.crossings]
    assert len(paths) == len(set(paths))
    assert {toy.join(path) + rest for path, rest in zip(paths, remaining, strict=True)} == {point.healed}
    assert b"" in remaining
    assert all(find_crossing_interval(toy.trie, rest).num_tokens for rest in remaining)
    assert {crossing.rule for crossing in covering.crossings} == {Rule.CROSS}


_tokens = st.text("ab\0", max_size=3).map(str.encode)


@given(tokens=st.lists(_tokens, max_size=12), remaining=_tokens)
@example([b"a", b"a\x00", b"ab", b"a", b"b"], b"a")
def test_tokens_of_a_crossing_start_with_the_remaining_bytes_and_are_longer(
    tokens: list[bytes], remaining: bytes
) -> None:
    trie = Trie.build(Vocabulary.from_tokens(dict(enumerate(tokens)), {}))
    lo, hi = find_crossing_interval(trie, remaining)
    assert sorted(trie.order[lo:hi].tolist()) == [
        index for index, token in enumerate(tokens) if token.startswith(remaining) and token != remaining
    ]


@kinds
@pytest.mark.parametrize("text", long_texts.values(), ids=long_texts)
def test_only_the_end_of_a_very_long_pre_token_is_healed_with_a_small_tree(kind: str, text: str) -> None:
    toy = toy_tokenizer(kind)
    point, covering = build_after_common(toy, text)
    for continuation in ("x", " x", "e", "=", "文a", ";if(e)"):
        ids = toy.encode(text + continuation)
        assert ids[: len(point.kept_ids)] == point.kept_ids, continuation
        assert allows(toy, covering, find_member(toy, point, ids)), continuation
    assert len(find_heal_point(toy.encoder, text).healed) < 400
    assert len(covering.tree.with_chain((0,)).branch_ids) < 800


def test_a_pre_token_that_no_merge_makes_is_covered_as_one_token_and_as_its_parts() -> None:
    toy = toy_tokenizer("llama3")
    words = [f"x\n{token.decode()}" for token in toy.vocabulary.token_bytes[640:] if len(token) > 1]
    cases = [text for text in words if toy.encoder.split(text)[-1].data == text[2:].encode()]
    assert len(cases) > 10
    for text in cases:
        point, covering = build_after_common(toy, text)
        for more in ("(", "\n", " x", "x", ""):
            assert allows(toy, covering, find_member(toy, point, toy.encode(text + more))), (text, more)
