from itertools import accumulate, pairwise

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from inference.healing.covering import build_covering
from inference.healing.heal_point import count_common, find_heal_point
from inference.healing.text_encoder import PreToken, TextEncoder
from tests.support.tokenizer_folders import ALL_KINDS, any_tokenizer, is_judged
from tests.support.toys import KINDS, cut_texts, long_texts, texts, toy_tokenizer

# Pre-tokenizers that no toy tokenizer has, and that once had a wrong heal point.
_BYTES = ByteLevel(add_prefix_space=False, use_regex=False)
_PRE_TOKENIZERS = {
    "starcoder": Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]),
    "deepseek-coder": Sequence(
        [
            Split(Regex(r"[\r\n]"), "isolated"),
            Split(Regex(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƻƼ-ƿǀ-ǃǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+"), "isolated"),
            Split(Regex(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), "isolated"),
            Split(Regex(r"\s+$"), "isolated"),
            Split(Regex(r"[一-龥ࠀ-一가-퟿]+"), "isolated"),
            Digits(individual_digits=True),
            _BYTES,
        ]
    ),
    "deepseek-v3": Sequence(
        [
            Split(Regex(r"\p{N}{1,3}"), "isolated"),
            Split(Regex(r"[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
            Split(
                Regex(
                    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
                ),
                "isolated",
            ),
            _BYTES,
        ]
    ),
}
families = pytest.mark.parametrize("family", _PRE_TOKENIZERS)

# Of each class in the patterns something, and what joins others.
_PIECES = [*"aS1é中の’“。、.(_'\"=/ \t\n\r", "\xa0", "\u3000", "\u0301", "😀", "\u200d", "'s", "l", "re", "  ", "\r\n"]
_family_texts = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=12).map("".join)

all_kinds = pytest.mark.parametrize("kind", ALL_KINDS)
kinds = pytest.mark.parametrize("kind", KINDS)
_many = settings(max_examples=4 * settings().max_examples)


@all_kinds
@_many
@given(cut=cut_texts())
@example(cut=("ae", "\u0301"))  # NFC joins the last two; a token may begin before them
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
def test_kept_tokens_and_healed_bytes_are_the_text_and_no_code_point_is_split(kind: str, text: str) -> None:
    toy = toy_tokenizer(kind)

    point = find_heal_point(toy.encoder, text)

    assert toy.join(point.kept_ids) + point.healed == (toy.encoder.find_dummy_prefix(text) + text).encode()
    point.healed.decode()  # no code point is split: this does not raise


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
    for continuation in ("x", " x", "e", "=", "文a", ";if(e)"):
        assert toy.encode(text + continuation)[: len(point.kept_ids)] == point.kept_ids, continuation


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


class _PieceEncoder(TextEncoder):
    """An encoder in which each distinct pre-token is a token, so that the tokens differ wherever a boundary moves."""

    def __init__(self, pre_tokenizer: PreTokenizer) -> None:
        super().__init__()
        self._pre_tokenizer = pre_tokenizer
        self._ids: dict[bytes, int] = {}
        self.num_split_chars = 0

    def _split_plain(self, text: str, start: int) -> list[PreToken]:  # noqa: ARG002  # no added texts: always 0
        self.num_split_chars += len(text)
        data = text.encode()
        ends = list(accumulate(len(shown) for shown, _ in self._pre_tokenizer.pre_tokenize_str(text)))
        return [PreToken(data[start:end], end) for start, end in pairwise([0, *ends])]

    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        return (self._ids.setdefault(beginning, len(self._ids)),) if beginning else ()

    def encode_text(self, text: str) -> tuple[int, ...]:
        return tuple(token_id for piece in self.split(text) for token_id in self.encode(piece.data))


@families
@settings(max_examples=500)
@given(text=_family_texts, continuation=_family_texts)
def test_kept_tokens_of_a_family_begin_the_finished_text(family: str, text: str, continuation: str) -> None:
    encoder = _PieceEncoder(_PRE_TOKENIZERS[family])

    kept_ids = find_heal_point(encoder, text).kept_ids

    assert encoder.encode_text(text + continuation)[: len(kept_ids)] == kept_ids


@pytest.mark.parametrize(("text", "continuation"), [("x’", "“"), ("x “", "’"), ("\t\t", "、"), ("é\xa0\xa0", "“")])
def test_wide_punctuation_joins_blanks_that_other_punctuation_does_not(text: str, continuation: str) -> None:
    """In DeepSeek's pattern it is in two classes: it joins a blank before it, and is otherwise its own pre-token."""
    encoder = _PieceEncoder(_PRE_TOKENIZERS["deepseek-coder"])

    point = find_heal_point(encoder, text)

    whole = encoder.split(text + continuation)
    start = len(text.encode()) - len(point.healed)
    ends = [piece.end - start for piece in whole]
    assert encoder.encode_text(text + continuation)[: len(point.kept_ids)] == point.kept_ids
    assert tuple(end for end in ends if 0 < end <= len(point.healed)) in [split.ends for split in point.splits]


@families
def test_the_whole_text_is_split_once_and_then_only_its_end(family: str) -> None:
    text = "    return self.name\n" * 200
    encoder = _PieceEncoder(_PRE_TOKENIZERS[family])

    find_heal_point(encoder, text)

    assert encoder.num_split_chars < 2 * len(text)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_of_a_run_of_line_ends_only_the_last_are_split_again(line_end: str) -> None:
    text = "x = 1" + 1000 * line_end
    encoder = _PieceEncoder(_PRE_TOKENIZERS["deepseek-coder"])

    assert find_heal_point(encoder, text).healed == b""
    assert encoder.num_split_chars < 2 * len(text)


_runs = st.builds(lambda count, text: "a" * count + text, st.integers(0, 300), st.text("ab", max_size=20))


@given(first=_runs, second=_runs)
def test_common_items_are_counted_up_to_where_they_differ(first: str, second: str) -> None:
    differs = [one != other for one, other in zip(first, second, strict=False)]
    expected = [*differs, True].index(True)

    assert count_common(first, second) == count_common(list(map(ord, first)), list(map(ord, second))) == expected
