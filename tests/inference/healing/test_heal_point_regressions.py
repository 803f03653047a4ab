"""Cases that once had a wrong heal point, and pre-tokenizer patterns that no toy tokenizer has."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from inference.healing.heal_point import find_heal_point
from inference.healing.text_encoder import PreToken, TextEncoder

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
_texts = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=12).map("".join)


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
@given(text=_texts, continuation=_texts)
def test_kept_tokens_are_the_first_tokens_of_the_finished_text(family: str, text: str, continuation: str) -> None:
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
