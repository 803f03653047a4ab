"""The covering `canonical`, compared with the tokenizer's own results for many continuations."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inference.characters.model import CoveringSettings
from inference.errors import InvalidRequestError
from tests.support.character_oracles import END, CanonicalStrings, is_text, logsumexp, walk_three_ways
from tests.support.character_toys import (
    CorpusModel,
    RandomModel,
    ToyReader,
    find_start_ids,
    merge_by_hand,
    merged_tokenizers,
    open_toy,
    random_models,
    train_on,
)
from tests.support.toys import (
    BYTE_LEVEL_KINDS,
    KINDS,
    NARROW_ALPHABET,
    SENTENCEPIECE_KINDS,
    ToyTokenizer,
    narrow_tokenizer,
    texts,
    toy_tokenizer,
)

kinds = pytest.mark.parametrize("kind", KINDS)

_CANONICAL = CoveringSettings(threshold=1.0)  # and nothing else
_DEFAULT = CoveringSettings()
_assert_close = partial(np.testing.assert_allclose, rtol=0, atol=1e-9)

_few = settings(max_examples=settings().max_examples // 4)  # eight kinds, each with as many

_narrow_texts = st.text(NARROW_ALPHABET + "é", max_size=8)
_data = st.data()


@st.composite
def _cut_bytes(draw: st.DrawFn) -> bytes:
    """Draws a text, cut after any byte."""
    whole = draw(_narrow_texts).encode()
    return whole[: draw(st.integers(0, len(whole)))]


def _draw_toy(data: st.DataObject, kind: str) -> ToyTokenizer:
    """Draws a trained tokenizer, or one with random merges."""
    return narrow_tokenizer(kind) if data.draw(st.booleans()) else data.draw(merged_tokenizers(kind))


def _draw_model(data: st.DataObject, toy: ToyTokenizer, **changes: object) -> RandomModel:
    return data.draw(random_models(toy.trie, share_impossible=0.0, **changes))


def _with_dummy_prefix(toy: ToyTokenizer, text: bytes) -> bytes:
    return toy.encoder.find_dummy_prefix("").encode() + text


@kinds
@_few
@given(data=_data, text=_cut_bytes())
def test_canonical_has_the_mass_of_the_canonical_strings_and_gives_each_byte_its_share(
    kind: str, data: st.DataObject, text: bytes
) -> None:
    toy = _draw_toy(data, kind)
    model = _draw_model(data, toy)
    oracle, whole = CanonicalStrings(toy, model, find_start_ids(toy)), _with_dummy_prefix(toy, text)
    characters = open_toy(toy, model)

    opened, advanced = characters.open(text, _CANONICAL), characters.open(b"", _CANONICAL).advance(text)

    expected = oracle.find_next(whole)
    _assert_close(opened.next_log_probs, expected)
    _assert_close(advanced.next_log_probs, expected)
    _assert_close(advanced.log_mass, logsumexp(list(oracle.find_masses(whole))))


@kinds
@_few
@given(known=st.lists(texts, min_size=1, max_size=6), data=_data)
def test_canonical_is_exact_for_a_model_that_was_trained_on_canonical_strings(
    kind: str, known: list[str], data: st.DataObject
) -> None:
    """The oracle counts texts. (SentencePiece treats a blank mark or a leading blank differently.)"""
    known = [text for text in known if kind not in SENTENCEPIECE_KINDS or not ("▁" in text or text[:1] in ("", " "))]
    assume(known)
    toy = toy_tokenizer(kind)
    weights = dict(zip(known, (1.0, 3.0, 0.5, 8.0, 2.0, 1e-6), strict=False))
    characters = open_toy(toy, train_on(toy, weights))
    whole = data.draw(st.sampled_from(known)).encode()
    cut = data.draw(st.integers(0, len(whole)))

    expected = _count(weights, whole[:cut])
    for state in (characters.open(whole[:cut]), characters.open(b"").advance(whole[:cut])):
        np.testing.assert_allclose(np.exp(state.next_log_probs), expected, rtol=1e-9, atol=0)


@kinds
@_few
@given(data=_data, text=_cut_bytes(), cuts=st.lists(st.integers(0, 16), min_size=1, max_size=3))
def test_a_text_has_one_probability_however_it_is_divided_and_read(
    kind: str, data: st.DataObject, text: bytes, cuts: list[int]
) -> None:
    """At once, byte by byte, from a kept state, or by the chain rule with a part as the context."""
    toy = _draw_toy(data, kind)
    characters = open_toy(toy, _draw_model(data, toy))
    for covering in (_CANONICAL, _DEFAULT):
        start = characters.open(b"", covering)
        states = walk_three_ways(start, text, cuts, lambda cut: b"sa1" if is_text(text[:cut]) else b"")
        whole = states[-1]
        for state in states:
            _assert_close(np.exp(state.next_log_probs).sum(), 1)
        for cut in cuts if covering is not _DEFAULT else []:
            rest = characters.open(text[:cut], covering).advance(text[cut:])
            found = np.array([rest.log_probability, rest.log_probability_with_end])
            expected = [whole.log_probability, whole.log_probability + whole.next_log_probs[END]]
            _assert_close(states[min(cut, len(text))].log_probability + found, expected)


@pytest.mark.parametrize("kind", [*BYTE_LEVEL_KINDS, "metaspace-bare"])
@_few
@given(
    data=_data,
    head=st.text("as1", min_size=2, max_size=6),
    endings=st.sets(st.text("as1 '\n", max_size=5), min_size=1, max_size=2),
)
def test_likely_non_canonical_tokens_of_a_word_are_followed(
    kind: str, data: st.DataObject, head: str, endings: set[str]
) -> None:
    """The texts have a common beginning, which the model has seen letter by letter, or also in canonical tokens."""
    toy = _draw_toy(data, kind)
    letters = tuple(toy.vocabulary.token_bytes.index(letter.encode()) for letter in head)
    beginnings = data.draw(st.sampled_from([{letters: 1.0}, {letters: 0.7, toy.encode(head): 0.3}]))
    weights = {f"{head} {ending}": 2.0**place for place, ending in enumerate(sorted(endings))}
    strings = {
        beginning + toy.encode(text)[len(toy.encode(head)) :]: weight * part
        for text, weight in weights.items()
        for beginning, part in beginnings.items()
    }
    characters = open_toy(toy, CorpusModel(toy.trie, find_start_ids(toy), strings))

    for text in weights:
        for cut in range(len(text) + 1):
            state = characters.open(b"").advance(text[:cut].encode())
            _assert_close(np.exp(state.next_log_probs), _count(weights, text[:cut].encode()))


def test_non_canonical_tokens_are_followed_through_the_token_after_the_word() -> None:
    """`11` is a token, but the model has seen `1|1` and two blanks in one token. The first blank completes the word."""
    toy = merge_by_hand("llama3", "Ġ Ġ", words=["11"])
    one, blanks = (toy.vocabulary.token_bytes.index(text) for text in (b"1", b"  "))
    characters = open_toy(toy, CorpusModel(toy.trie, find_start_ids(toy), {(one, one, blanks): 1.0}))

    surprisals = characters.compute_surprisals(b"11  ")

    _assert_close(surprisals, 0)


def test_the_heavier_of_two_tokenizations_remains_once_later_tokens_are_stable() -> None:
    toy = merge_by_hand("llama3", words=["11"])
    one, word = (toy.vocabulary.token_bytes.index(text) for text in (b"1", b"11"))
    following = toy.encode(" a" * 9)
    weights = {(one, one, *following): 0.7, (word, *following): 0.3}
    start = open_toy(toy, CorpusModel(toy.trie, find_start_ids(toy), weights)).open(b"")

    near, far = start.advance(b"11 a"), start.advance(b"11" + b" a" * 8)

    _assert_close(np.exp(near.log_mass), 1)
    _assert_close(np.exp(far.log_mass), 0.7)


def _count(weights: Mapping[str, float], begun: bytes) -> npt.NDArray[np.float64]:
    """[257]: the weights of the texts with this beginning, by their next byte or end."""
    expected = np.zeros(257)
    for text, weight in weights.items():
        if text.encode().startswith(begun):
            expected[(text.encode() + bytes([0]))[len(begun)] if len(text.encode()) > len(begun) else END] += weight
    probabilities: npt.NDArray[np.float64] = expected / expected.sum()
    return probabilities


@pytest.mark.parametrize("kind", ["qwen", "llama2"])
@_few
@given(data=_data, words=st.lists(st.sampled_from(["as", "a1", "s", "'s", "\n", "1", "é"]), min_size=1, max_size=60))
def test_a_moving_window_does_not_change_a_model_that_looks_back_two_tokens(
    kind: str, data: st.DataObject, words: list[str]
) -> None:
    toy = _draw_toy(data, kind)
    model = _draw_model(data, toy, num_tokens_seen=2)
    text = " ".join(words).encode()

    near = open_toy(toy, model, max_tokens=48).open(b"", _CANONICAL)
    far = open_toy(toy, model).open(b"", _CANONICAL)

    for ours, other in zip(near.walk(text), far.walk(text), strict=True):
        _assert_close(ours.next_log_probs, other.next_log_probs)


@pytest.mark.parametrize("kind", ["gpt2", "llama2"])
def test_a_word_of_half_the_window_fits(kind: str) -> None:
    """The tokenizer spells these letters as bytes, so there are as many tokens as bytes."""
    toy = narrow_tokenizer(kind)
    characters = open_toy(toy, RandomModel(toy.trie.num_tokens, num_tokens_seen=1), max_tokens=256)
    word = "中文字符日本語".encode() * 6

    state = characters.open(b"as " * 300 + word).advance(b" as" * 10 + word)

    assert np.isfinite(state.log_mass)


@pytest.mark.parametrize("kind", ["qwen", "metaspace-split"])
def test_the_memory_of_a_long_walk_is_bounded(kind: str) -> None:
    toy = narrow_tokenizer(kind)
    state = open_toy(toy, RandomModel(toy.trie.num_tokens, num_tokens_seen=2), max_tokens=64).open(b"")
    held = []
    for _ in range(40):  # 520 bytes; the window has 64 tokens
        state = state.advance(b"as a1 's\n sas")
        assert isinstance(state.reader, ToyReader)
        held.append((len(state.reader.strings), state.reader.num_rows_held))

    assert max(held[20:]) <= max(held[:20])


@pytest.mark.parametrize("text", [b"a\xff", b"\x80", b"a\xc3(", b"\xed\xa0\x80"])
def test_bytes_that_are_not_utf8_are_refused(text: bytes) -> None:
    toy = narrow_tokenizer("qwen")
    characters = open_toy(toy, RandomModel(toy.trie.num_tokens))

    with pytest.raises(InvalidRequestError, match="not UTF-8"):
        characters.open(text)
    with pytest.raises(InvalidRequestError, match="not UTF-8"):
        characters.open(b"").advance(text)


def test_a_word_that_is_longer_than_the_window_is_refused() -> None:
    toy = narrow_tokenizer("gpt2")
    characters = open_toy(toy, RandomModel(toy.trie.num_tokens), max_tokens=32)

    with pytest.raises(InvalidRequestError, match="window"):
        characters.open(b"as " * 9, _CANONICAL).advance(b"sasa" * 20)
