from itertools import pairwise

import pytest
from hypothesis import assume, given, settings

from inference.healing.covering import build_covering
from inference.healing.heal_point import find_heal_point
from inference.healing.text_encoder import PreToken, TextEncoder
from tests.support.tokenizer_folders import ALL_KINDS, any_tokenizer, is_judged
from tests.support.toys import KINDS, cut_texts, long_texts, texts, toy_tokenizer

all_kinds = pytest.mark.parametrize("kind", ALL_KINDS)
kinds = pytest.mark.parametrize("kind", KINDS)
_many = settings(max_examples=4 * settings().max_examples)


@all_kinds
@_many
@given(cut=cut_texts())
def test_kept_and_common_tokens_are_the_first_tokens_of_the_finished_text(kind: str, cut: tuple[str, str]) -> None:
    toy = any_tokenizer(kind)
    text, continuation = cut
    assume(text and is_judged(kind, text + continuation))

    point = find_heal_point(toy.encoder, text)
    kept_ids = point.kept_ids + build_covering(toy.encoder, toy.trie, point).common_ids

    assert toy.encode(text + continuation)[: len(kept_ids)] == kept_ids


@kinds
@_many
@given(text=texts)
def test_kept_tokens_and_healed_bytes_are_the_text(kind: str, text: str) -> None:
    toy = toy_tokenizer(kind)

    point = find_heal_point(toy.encoder, text)

    assert toy.join(point.kept_ids) + point.healed == (toy.encoder.find_dummy_prefix(text) + text).encode()


@kinds
@given(text=texts)
def test_heal_point_never_splits_a_code_point(kind: str, text: str) -> None:
    point = find_heal_point(toy_tokenizer(kind).encoder, text)

    assert (toy_tokenizer(kind).encoder.find_dummy_prefix(text) + text).endswith(point.healed.decode())


@kinds
@given(cut=cut_texts())
def test_pre_token_boundaries_of_the_finished_text_are_one_of_the_splits(kind: str, cut: tuple[str, str]) -> None:
    toy = toy_tokenizer(kind)
    text, continuation = cut
    dummy_prefix = toy.encoder.find_dummy_prefix(text)
    assume(text and dummy_prefix == toy.encoder.find_dummy_prefix(text + continuation))

    point = find_heal_point(toy.encoder, text)

    start, end = len((dummy_prefix + text).encode()) - len(point.healed), len((dummy_prefix + text).encode())
    whole = dummy_prefix + text + continuation
    ends = [piece.end for piece in toy.encoder.split(whole)]
    assert tuple(at - start for at in ends if start < at <= end) in {
        *(split.ends for split in point.splits),
        *((*split.ends, end - start) for split in point.splits),  # a boundary at the cursor changes nothing
    }


@kinds
@pytest.mark.parametrize(
    ("text", "healed"),
    [("class Node:\n    def next(self) -> Nod", "Nod"), ("x = add", "add"), ("x = 'café", "é")],
)
def test_little_more_than_the_typed_word_is_healed(kind: str, text: str, healed: str) -> None:
    point = find_heal_point(toy_tokenizer(kind).encoder, text)

    assert point.healed.decode().endswith(healed)
    assert len(point.healed.decode().split()) == 1


@kinds
@pytest.mark.parametrize("text", ["x = 1 ", "if x:\n    ", "if x:\n\t\t", "a\r\n  \r\n"])
def test_trailing_blanks_are_either_kept_or_healed(kind: str, text: str) -> None:
    toy = toy_tokenizer(kind)

    point = find_heal_point(toy.encoder, text)

    assert (toy.join(point.kept_ids) + point.healed).decode().endswith(text)


@pytest.mark.parametrize(
    ("kind", "text", "continuation", "reaches_back"),
    [
        ("gpt2", "they'r", "e", "'r"),
        ("gpt2", "we'l", "l", "'l"),
        ("o200k", "don'", "t", "don'"),
        ("llama3", "x12", "3", "12"),
        ("qwen", "x\n  ", "\n", "\n  "),
    ],
)
def test_a_pre_token_that_the_next_character_can_join_is_healed(
    kind: str, text: str, continuation: str, reaches_back: str
) -> None:
    toy = toy_tokenizer(kind)
    pre_tokens = [piece.data for piece in toy.encoder.split(text + continuation)]
    assert any(piece.startswith(reaches_back.encode()) for piece in pre_tokens), (
        "the case is not what it was meant to be"
    )

    point = find_heal_point(toy.encoder, text)

    assert point.healed.decode().endswith(reaches_back)


@kinds
def test_an_empty_text_heals_the_dummy_prefix(kind: str) -> None:
    encoder = toy_tokenizer(kind).encoder

    point = find_heal_point(encoder, "")

    assert point.kept_ids == ()
    assert point.healed.decode() == encoder.find_dummy_prefix("")


@kinds
@pytest.mark.parametrize("text", long_texts.values(), ids=long_texts)
def test_only_the_end_of_a_very_long_pre_token_is_healed(kind: str, text: str) -> None:
    toy = toy_tokenizer(kind)

    point = find_heal_point(toy.encoder, text)

    assert len(point.healed) < 400
    assert toy.join(point.kept_ids) + point.healed == (toy.encoder.find_dummy_prefix(text) + text).encode()


@kinds
@pytest.mark.parametrize("text", long_texts.values(), ids=long_texts)
def test_kept_tokens_of_a_very_long_pre_token_are_the_first_of_the_finished_text(kind: str, text: str) -> None:
    toy = toy_tokenizer(kind)

    kept_ids = find_heal_point(toy.encoder, text).kept_ids

    for continuation in ("x", " x", "e", "=", "文a", ";if(e)"):
        assert toy.encode(text + continuation)[: len(kept_ids)] == kept_ids, continuation


class _UnsteadyEncoder(TextEncoder):
    """An encoder whose first boundary depends on the continuation of `xyz`. Pre-tokens are tokens."""

    def find_dummy_prefix(self, text: str) -> str:
        return "" if text else "?"

    def _split_plain(self, text: str, start: int) -> list[PreToken]:  # noqa: ARG002  # no added texts: always 0
        ends = [1 if text.endswith("a") else 2, 3, len(text)]
        return [PreToken(text[start:end].encode(), end) for start, end in pairwise([0, *ends])]

    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        return (len(beginning),)


def test_a_boundary_that_moves_with_the_continuation_is_no_heal_point_and_gives_two_splits() -> None:
    point = find_heal_point(_UnsteadyEncoder(), "xyz")

    assert point.kept_ids == ()
    assert point.healed == b"xyz"
    assert [split.ends for split in point.splits] == [(1, 3), (2, 3)]
