"""Which tokenizers are right, judged by the `tokenizers` library, and which are refused, in which words."""

import re
import unicodedata
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inference.errors import ModelError
from inference.healing.covering import build_covering, find_canonical_paths
from inference.healing.heal_point import encode_text, find_heal_point
from inference.healing.loaded_tokenizer import load_tokenizer
from tests.support.tokenizer_folders import (
    BYTE_LEVEL,
    Subject,
    add,
    load_subject,
    sequence,
    spec_of,
    split,
    write_folder,
)
from tests.support.toys import cut_texts

_DIGITS_FROM_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\p{L}+|\s+|[^\s\p{L}\p{N}]+"
_GEMMA_SPLIT = {
    "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False
}  # fmt: skip
_BLANK_TO_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
_RUNS = [" " * count for count in range(2, 9)] + ["\t" * count for count in range(2, 5)]
_DIGITS = {"type": "Digits", "individual_digits": True}
_NFC = {"type": "NFC"}

# What is right, by the name of a model family or of the part that is special.
_RIGHT: dict[str, dict[str, Any]] = {
    "falcon": {
        "kind": "gpt2",
        "pre_tokenizer": sequence(
            {"type": "Punctuation", "behavior": "Contiguous"},
            {**BYTE_LEVEL, "use_regex": True},
            {"type": "Digits", "individual_digits": False},
            split("[0-9][0-9][0-9]"),
        ),
    },
    "bytes before digits": {"kind": "gpt2", "pre_tokenizer": sequence({**BYTE_LEVEL, "use_regex": True}, _DIGITS)},
    "digits from the right": {"kind": "llama3", "pre_tokenizer": sequence(split(_DIGITS_FROM_RIGHT), BYTE_LEVEL)},
    "kept matches": {
        "kind": "qwen",
        "pre_tokenizer": sequence(split(r"\p{L}+|\p{N}|[^\p{L}\p{N}]+", "Removed", invert=True), BYTE_LEVEL),
    },
    "a blank before": {"kind": "gpt2", "pre_tokenizer": {**BYTE_LEVEL, "use_regex": True, "add_prefix_space": True}},
    "nfc": {"kind": "qwen", "normalizer": _NFC},
    "nfc, by characters": {
        "kind": "qwen", "normalizer": _NFC, "pre_tokenizer": sequence(split(r"[\s\S]"), BYTE_LEVEL)
    },
    "gpt-neox": {"kind": "gpt2", "normalizer": _NFC, "added": add(*_RUNS, normalized=True)},
    "phi": {"kind": "gpt2", "added": add(*_RUNS)},
    "words": {"kind": "qwen", "added": add("return", "self.", "ü", "foo bar", "foo")},
    "gemma": {
        "kind": "llama2",
        "normalizer": _BLANK_TO_MARK,
        "pre_tokenizer": _GEMMA_SPLIT,
        "added": add("\n", "\n\n", "\n\n\n", "▁▁", "<b>", "</table>", "<tool_call>"),
    },
    "sentencepiece with digits": {
        "kind": "llama2",
        "normalizer": None,
        "pre_tokenizer": sequence(
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}, _DIGITS
        ),
    },
    "truncation and padding": {
        "kind": "qwen",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 16}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 1, "pad_type_id": 0,
            "pad_token": "<|endoftext|>",
        },
    },
    "dropout of 0": {"kind": "qwen", "model": {"dropout": 0.0}},
}  # fmt: skip
right = pytest.mark.parametrize("name", _RIGHT)


@cache
def _subject(name: str) -> Subject:
    parts = dict(_RIGHT[name])
    return load_subject(Path(mkdtemp()), spec_of(parts.pop("kind"), **parts))


_ADDED_PIECES = ["return", "self.", "ü", "foo bar", "foo", "<b>", "</table>", "\n", "  ", "    ", " " * 7, "\t\t"]
_ADDED_PIECES += ["a\u030a", "=\u0338", "가", "\u1100\u1161", "123456789012345678", "für", "½"]


@st.composite
def _cuts(draw: st.DrawFn) -> tuple[str, str]:
    """Draws texts with pieces of added tokens, digits and marks that compose, cut anywhere."""
    text, continuation = draw(cut_texts())
    pieces = st.lists(st.sampled_from(_ADDED_PIECES), max_size=3).map("".join)
    whole = text[-8:] + draw(pieces) + continuation[:8] + draw(pieces)
    cut = draw(st.integers(0, len(whole)))
    return whole[:cut], whole[cut:]


def _is_judged(name: str, text: str) -> bool:
    """False for the differences that are intended: a typed U+2581, and text that looks like a control token."""
    is_sentencepiece = _RIGHT[name]["kind"] == "llama2"
    return bool(text) and not (is_sentencepiece and "▁" in text) and "<tool_call>" not in text


@right
@given(cut=_cuts())
def test_a_text_gets_the_ids_of_its_tokenizer(name: str, cut: tuple[str, str]) -> None:
    subject, text = _subject(name), "".join(cut)
    assume(_is_judged(name, text))

    assert encode_text(subject.loaded.encoder, text) == subject.encode(text)


@right
@given(cut=_cuts())
def test_kept_and_common_tokens_are_the_first_tokens_of_the_finished_text(name: str, cut: tuple[str, str]) -> None:
    subject, (text, continuation) = _subject(name), cut
    assume(text and _is_judged(name, text + continuation))
    encoder, trie = subject.loaded.encoder, subject.loaded.trie

    point = find_heal_point(encoder, text)
    kept_ids = point.kept_ids + build_covering(encoder, trie, point).common_ids

    assert subject.encode(text + continuation)[: len(kept_ids)] == kept_ids


@right
@given(cut=_cuts())
def test_the_tokens_of_the_finished_text_take_one_crossing(name: str, cut: tuple[str, str]) -> None:
    subject, (text, continuation) = _subject(name), cut
    whole = text + continuation
    assume(text and _is_judged(name, whole))
    assume(unicodedata.normalize("NFC", whole).startswith(unicodedata.normalize("NFC", text)))
    encoder, trie = subject.loaded.encoder, subject.loaded.trie

    point = find_heal_point(encoder, text)
    covering = build_covering(encoder, trie, point)

    ids = subject.encode(whole)[len(point.kept_ids) + len(covering.common_ids) :]
    healed = point.healed[covering.num_common_bytes :]
    num_path = 0
    while num_path < len(ids) and len(subject.join(ids[: num_path + 1])) <= len(healed):
        num_path += 1
    tree = covering.build_tree((0,))
    paths = {
        tuple(tree.branch_ids[branch] for branch in tree.find_path(crossing.node)): crossing.remaining_bytes
        for crossing in covering.crossings
    }
    assert paths.get(ids[:num_path]) == healed[len(subject.join(ids[:num_path])) :]


@pytest.mark.parametrize(
    ("name", "text", "continuation"),
    [
        ("phi", "x = 1\n   ", "   y"),
        ("gemma", "x </ta", "ble>"),
        ("words", "(retu", "rn"),
        ("gpt-neox", "x\n\t", "\t\tx"),
    ],
)
def test_an_added_text_that_is_begun_can_be_completed(name: str, text: str, continuation: str) -> None:
    subject = _subject(name)
    encoder, trie = subject.loaded.encoder, subject.loaded.trie

    point = find_heal_point(encoder, text)
    paths = find_canonical_paths(encoder, trie, point)

    ids = subject.encode(text + continuation)
    added = next(index for index, token_id in enumerate(ids) if len(subject.join(ids[: index + 1])) > len(text))
    assert ids[: len(point.kept_ids)] == point.kept_ids
    assert text.endswith(paths[ids[len(point.kept_ids) : added]].decode())


def test_a_letter_that_a_mark_may_still_change_is_healed() -> None:
    subject = _subject("nfc, by characters")

    point = find_heal_point(subject.loaded.encoder, "cafe")

    assert point.healed == b"e"
    assert build_covering(subject.loaded.encoder, subject.loaded.trie, point).num_common_bytes == 0


@right
@given(cut=_cuts())
def test_the_kept_tokens_never_roll_back_as_text_is_typed(name: str, cut: tuple[str, str]) -> None:
    """What a cache keeps between keystrokes stays right. Only a letter that a typed mark changes is new."""
    subject, (text, continuation) = _subject(name), cut
    assume(text)
    encoder, trie = subject.loaded.encoder, subject.loaded.trie
    kept = []

    for typed in (text, text + continuation):
        point = find_heal_point(encoder, typed)
        kept.append(point.kept_ids + build_covering(encoder, trie, point).common_ids)

    assert kept[1][: len(kept[0])] == kept[0]


_REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "normalizer NFKC": ("qwen", {"normalizer": {"type": "NFKC"}}),
    "normalizer Lowercase": ("qwen", {"normalizer": {"type": "Lowercase"}}),
    "normalizer Replace of '\\t'": (
        "llama2",
        {"normalizer": {"type": "Replace", "pattern": {"String": "\t"}, "content": "    "}},
    ),
    "no normalizer or pre_tokenizer step writes a blank as '▁'": ("llama2", {"normalizer": None}),
    "pre_tokenizer has no step ByteLevel": ("qwen", {"pre_tokenizer": None}),
    "pre_tokenizer Whitespace drops": ("qwen", {"pre_tokenizer": sequence({"type": "Whitespace"}, BYTE_LEVEL)}),
    "pre_tokenizer Split of": ("qwen", {"pre_tokenizer": sequence(split(r"\s+", "Removed"), BYTE_LEVEL)}),
    "ByteLevel with add_prefix_space puts a blank before each": (
        "qwen",
        {"pre_tokenizer": sequence(_DIGITS, {**BYTE_LEVEL, "add_prefix_space": True})},
    ),
    "'a(' after 'foo bar' moves the boundaries": (
        "qwen",
        {"pre_tokenizer": sequence(split(r"\w+(?=\()|\w|\W+"), BYTE_LEVEL)},
    ),
    "'\"' after .* moves the boundaries": (
        "qwen",
        {"pre_tokenizer": sequence(split(r'"[^"\n]*"|\w+|\s+|[^\w\s"]+|"'), BYTE_LEVEL)},
    ),
    "added token 'foo' is text and has single_word": ("qwen", {"added": add("foo", single_word=True)}),
    "added token 'foo' is text and has rstrip": ("qwen", {"added": add("foo", rstrip=True)}),
    "added token 'foo' is text, and a step puts a blank before a text": ("llama2", {"added": add("foo")}),
    "added token 'foo' is text and found before NFC": ("qwen", {"normalizer": _NFC, "added": add("foo")}),
    "is changed by normalizer NFC": ("qwen", {"normalizer": _NFC, "added": add("a\u0308b", normalized=True)}),
    "model dropout is 0.1": ("qwen", {"model": {"dropout": 0.1}}),
    "model continuing_subword_prefix is '##'": ("gpt2", {"model": {"continuing_subword_prefix": "##"}}),
    "model end_of_word_suffix is '</w>'": ("gpt2", {"model": {"end_of_word_suffix": "</w>"}}),
    "both byte_fallback and ignore_merges": ("llama2", {"model": {"ignore_merges": True}}),
    "model type WordLevel": ("qwen", {"model": {"type": "WordLevel", "unk_token": "a"}}),
    "model type Unigram": ("qwen", {"model": {"type": "Unigram", "unk_id": 0}}),
}


@pytest.mark.parametrize("words", _REFUSED)
def test_what_is_not_supported_is_refused_in_the_words_of_the_file(words: str, tmp_path: Path) -> None:
    kind, parts = _REFUSED[words]
    pattern = words if ".*" in words else re.escape(words)

    with pytest.raises(ModelError, match=pattern) as raised:
        load_tokenizer(write_folder(tmp_path, spec_of(kind, **parts)))

    assert str(raised.value).startswith(str(tmp_path))
    assert "\n" not in str(raised.value)


def test_a_byte_without_a_token_is_named(tmp_path: Path) -> None:
    spec = spec_of("gpt2")
    model = spec["model"]
    model["vocab"] = {piece: token_id for piece, token_id in model["vocab"].items() if "Ã" not in piece}
    model["merges"] = [pair for pair in model["merges"] if "Ã" not in "".join(pair)]

    with pytest.raises(ModelError, match="vocab has no token 'Ã' for the byte 0xC3"):
        load_tokenizer(write_folder(tmp_path, spec))


def test_a_byte_that_no_text_has_needs_no_token(tmp_path: Path) -> None:
    spec = spec_of("gpt2")
    del spec["model"]["vocab"]["ÿ"]

    assert load_tokenizer(write_folder(tmp_path, spec)).encoder.encode("ÿ".encode())


def test_a_byte_token_may_be_the_character_itself(tmp_path: Path) -> None:
    spec = spec_of("llama2")
    spec["model"]["vocab"]["\t"] = spec["model"]["vocab"].pop("<0x09>")

    loaded = load_tokenizer(write_folder(tmp_path, spec))

    assert loaded.encoder.encode(b"\t") == (spec["model"]["vocab"]["\t"],)


def test_merges_that_join_words_are_refused_with_the_joined_word(tmp_path: Path) -> None:
    spec = spec_of("llama2")
    vocab = spec["model"]["vocab"]
    spec["model"]["merges"].append(["e", "▁"])
    vocab["e▁"] = len(vocab)

    with pytest.raises(ModelError, match=r"merges join words.*e▁"):
        load_tokenizer(write_folder(tmp_path, spec))


def test_an_encoder_that_differs_is_refused_with_the_tokens_that_differ(tmp_path: Path) -> None:
    """This pre-tokenizer drops leading blanks, which no other check knows."""
    spec = spec_of("qwen", pre_tokenizer=sequence({"type": "UnicodeScripts"}, BYTE_LEVEL))

    with pytest.raises(ModelError, match=r"midtoken would encode .* after .* it makes .*, the tokenizer "):
        load_tokenizer(write_folder(tmp_path, spec))


def test_an_added_token_that_the_library_reads_with_another_id_is_refused(tmp_path: Path) -> None:
    spec = spec_of("qwen", added=add("foo"))
    spec["added_tokens"][-1]["id"] += 5

    with pytest.raises(ModelError, match=r"added token 'foo' has the id \d+ in the file, but \d+ in the library"):
        load_tokenizer(write_folder(tmp_path, spec))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tokenizer.model", "SentencePiece's format is not supported"),
        ("qwen.tiktoken", "tiktoken's format does not say how text is split"),
        ("tekken.json", "Mistral's format is not supported"),
        ("vocab.json", "a vocabulary alone"),
    ],
)
def test_another_tokenizer_file_is_refused_by_its_name(name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")

    with pytest.raises(ModelError, match=re.escape(f"no tokenizer.json, but {name}: {words}")):
        load_tokenizer(tmp_path)


def test_long_digit_runs_are_open_to_their_beginning() -> None:
    subject = _subject("digits from the right")
    digits = "12345" * 12  # of which there are tokens, so that they depend on how digits are grouped

    for length in (12, 13, 14, 31, 60):
        kept_ids = find_heal_point(subject.loaded.encoder, f"x = {digits[:length]}").kept_ids

        for more in ("1", "22", "333", "a"):
            assert subject.encode(f"x = {digits[:length]}{more}")[: len(kept_ids)] == kept_ids
