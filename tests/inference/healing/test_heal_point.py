from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from inference.healing import heal_point
from inference.healing.heal_point import HealPointCache, find_heal_point
from inference.healing.text_encoder import PreToken, TextEncoder
from inference.healing.token_tree import count_common
from tests.support.toys import KINDS, long_texts, texts, toy_tokenizer

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

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
@given(text=texts)
def test_kept_tokens_and_healed_bytes_are_the_text_and_no_code_point_is_split(kind: str, text: str) -> None:
    toy = toy_tokenizer(kind)

    point = find_heal_point(toy.encoder, text)

    assert toy.join(point.kept_ids) + point.healed == (toy.encoder.find_dummy_prefix(text) + text).encode()
    point.healed.decode()  # no code point is split: this does not raise


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
def test_an_empty_text_heals_the_dummy_prefix(kind: str) -> None:
    encoder = toy_tokenizer(kind).encoder

    point = find_heal_point(encoder, "")

    assert point.kept_ids == ()
    assert point.healed.decode() == encoder.find_dummy_prefix("")


class _PieceEncoder(TextEncoder):
    """An encoder in which each distinct pre-token is a token, so that the tokens differ wherever a boundary moves."""

    def __init__(self, pre_tokenizer: PreTokenizer) -> None:
        super().__init__()
        self._pre_tokenizer = pre_tokenizer
        self._ids: dict[bytes, int] = {}
        self.num_split_chars = self.most_chars = 0  # in all calls, and in one

    def _split_plain(self, text: str, start: int) -> list[PreToken]:  # noqa: ARG002  # no added texts: always 0
        self.num_split_chars += len(text)
        self.most_chars = max(self.most_chars, len(text))
        data = text.encode()
        ends = list(accumulate(len(shown) for shown, _ in self._pre_tokenizer.pre_tokenize_str(text)))
        return [PreToken(data[start:end], end) for start, end in pairwise([0, *ends])]

    def encode_beginning(self, beginning: bytes) -> tuple[int, ...]:
        return (self._ids.setdefault(beginning, len(self._ids)),) if beginning else ()

    def encode_text(self, text: str) -> tuple[int, ...]:
        return tuple(token_id for piece in self.split(text) for token_id in self.encode(piece.data))


@families
@settings(max_examples=12 * settings().max_examples)
@given(text=_family_texts, continuation=_family_texts)
@example("x’", "“")  # wide punctuation: in DeepSeek's pattern it joins a blank before it, and is else a pre-token
@example("x “", "’")
@example("\t\t", "、")
@example("é\xa0\xa0", "“")
@example("’\u3000", "\u3000")  # the wide blank is a blank and wide punctuation
def test_kept_tokens_of_a_family_begin_the_finished_text_and_its_boundaries_are_one_of_the_splits(
    family: str, text: str, continuation: str
) -> None:
    encoder = _PieceEncoder(_PRE_TOKENIZERS[family])
    point = find_heal_point(encoder, text)
    start, end = len(text.encode()) - len(point.healed), len(text.encode())
    ends = [piece.end for piece in encoder.split(text + continuation)]
    assert encoder.encode_text(text + continuation)[: len(point.kept_ids)] == point.kept_ids
    assert tuple(at - start for at in ends if start < at <= end) in {
        *(split.ends for split in point.splits),
        *((*split.ends, end - start) for split in point.splits),  # a boundary at the cursor changes nothing
    }


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


_LINES = "def walk(node, depth):\n    for child in node.children:\n        yield from walk(child, depth + 1)\n\n\n"


# Each edits one of two texts: it drops the last characters, then adds some.
_edits = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0, 0, 0, 1, 1, 5, 60, 700]), texts), min_size=1, max_size=12
)


@kinds
@given(start=texts, num_lines=st.integers(0, 40), edits=_edits)
def test_every_heal_point_is_that_of_the_text_alone(
    kind: str, start: str, num_lines: int, edits: list[tuple[bool, int, str]]
) -> None:
    encoder = toy_tokenizer(kind).encoder
    memory, edited = HealPointCache(encoder), {False: start + _LINES * num_lines, True: _LINES * 20 + "import os\n"}
    for which, num_dropped, added in edits:
        edited[which] = edited[which][: max(len(edited[which]) - num_dropped, 0)] + added
        found, expected = memory.heal(edited[which]), find_heal_point(encoder, edited[which])
        assert replace(found, num_stable_bytes=0, num_stable_ids=0) == replace(
            expected, num_stable_bytes=0, num_stable_ids=0
        )


@kinds
@pytest.mark.parametrize("name", long_texts)
def test_long_pre_tokens_that_grow_have_the_heal_points_of_the_text_alone(kind: str, name: str) -> None:
    encoder = toy_tokenizer(kind).encoder
    memory, text = HealPointCache(encoder), long_texts[name]
    for end in (900, 901, 1500, 1499, 1502, 600):
        assert memory.heal(text[:end]).kept_ids == find_heal_point(encoder, text[:end]).kept_ids


_LONG = _LINES * 100


@pytest.mark.parametrize(
    ("tenant", "texts", "least", "most"),
    [
        ("a", [_LONG + "return walk(children)"[:count] for count in range(1, 20)], 1, 1300),
        ("a", [_LONG[:-count] for count in range(1, 100)], 1, 1600),
        ("b", [_LONG], len(_LONG) - 256, len(_LONG)),  # tenants share nothing
    ],
    ids=["keys", "deletions", "another tenant"],
)
def test_after_an_edit_only_the_end_is_split_again(tenant: str, texts: list[str], least: int, most: int) -> None:
    encoder = _PieceEncoder(_PRE_TOKENIZERS["starcoder"])
    memory = HealPointCache(encoder)
    memory.heal(_LONG, "a")
    encoder.most_chars = 0

    for text in texts:
        memory.heal(text, tenant)

    assert least <= encoder.most_chars <= most


def test_only_so_many_texts_are_remembered() -> None:
    memory = HealPointCache(toy_tokenizer("qwen").encoder)
    for number in range(100):
        memory.heal(f"{number} = {number}\n" * 200)

    assert len(memory._beginnings) == heal_point._MAX_BEGINNINGS
