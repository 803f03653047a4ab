"""Which tokenizers are refused, in which words, and what is special of those that are right."""

import json
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from inference.errors import InvalidRequestError, ModelError
from inference.healing.heal_point import encode_text, find_heal_point
from inference.healing.loaded_tokenizer import build_text_encoder, find_start_ids, load_tokenizer
from inference.healing.tokenizer_file import parse_tokenizer_file
from tests.support.tokenizer_folders import BYTE_LEVEL, add, any_tokenizer, sequence, spec_of, split, write_folder
from trie_cache.trie import Vocabulary

_DIGITS = {"type": "Digits", "individual_digits": True}
_NFC = {"type": "NFC"}


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
    "added token 'foo' has the id 2000 in the file, but .* in the library": ("qwen", {"added": add("foo", id=2000)}),
    # This pre-tokenizer drops leading blanks, which no other check knows.
    "midtoken would encode .* after .* it makes .*, this tokenizer ": (
        "qwen",
        {"pre_tokenizer": sequence({"type": "UnicodeScripts"}, BYTE_LEVEL)},
    ),
    "model dropout is 0.1": ("qwen", {"model": {"dropout": 0.1}}),
    "model continuing_subword_prefix is '##'": ("gpt2", {"model": {"continuing_subword_prefix": "##"}}),
    "model end_of_word_suffix is '</w>'": ("gpt2", {"model": {"end_of_word_suffix": "</w>"}}),
    "both byte_fallback and ignore_merges": ("llama2", {"model": {"ignore_merges": True}}),
    "model has 99999 merges for .* tokens": ("qwen", {"model": {"merges": [["a", "b"]] * 99_999}}),
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


_WAITING = (  # for a letter that completes a word, a further sign of a run, the end of the text
    r"\breturn\b",
    r"(?i:select|from)\b",
    r"0x[0-9a-fA-F]+",
    r"https?://\S+",
    r"^\s+|\S+$|\w+",
    r"-{3,}",
    r"\s{8}(?!\S)|\s{4}(?!\S)",
    r"->|=>|\w+",
    r"__\w+__",
)


_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NEXT_STEPS: dict[str, list[Any]] = {  # after one that splits by a pattern
    "bytes": [BYTE_LEVEL],
    "gpt2": [{**BYTE_LEVEL, "use_regex": True}],
    "cl100k": [split(_CL100K), BYTE_LEVEL],
    "digits": [_DIGITS, {**BYTE_LEVEL, "use_regex": True}],
}


@pytest.mark.parametrize(
    ("pattern", "next_steps"), [*product(_WAITING, ("bytes", "gpt2", "cl100k")), (r"\n+|\S*[a-f]\b", "digits")]
)
def test_a_pattern_that_joins_what_is_further_back_is_refused(pattern: str, next_steps: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"moves the boundaries|takes for settled"):
        load_tokenizer(write_folder(tmp_path, _build_spec(pattern, next_steps)))


_ATOMS = st.sampled_from([*"ab1-=. \n", "return", "0x", "://", r"\s", r"\S", r"\w", r"\d", "[a-f]", "[^ab]", r"\p{L}"])
_REPEATED = st.sampled_from(["", "", "?", "+", "*", "{3,}", r"\b", "$"])
_PATTERNS = st.lists(st.lists(st.tuples(_ATOMS, _REPEATED), min_size=1, max_size=3), min_size=1, max_size=3)
_TEXTS = st.lists(st.sampled_from([*"ab1-=. \n", "ret", "urn", "0x", ":/", "/", "    "]), min_size=2, max_size=9)


@settings(phases=(Phase.explicit, Phase.generate))  # to shrink takes minutes
@example(parts=[[("[^ab]", "?"), ("b", "?")]], texts=[["    ", "b"]], next_steps="gpt2")
@given(parts=_PATTERNS, texts=st.lists(_TEXTS, min_size=30, max_size=30), next_steps=st.sampled_from([*_NEXT_STEPS]))
def test_a_tokenizer_with_any_pattern_keeps_right_tokens_or_is_refused(
    parts: list[list[tuple[str, str]]], texts: list[list[str]], next_steps: str
) -> None:
    pattern = "|".join("".join(map("".join, alternative)) for alternative in parts)
    with TemporaryDirectory() as folder:
        try:
            encoder = load_tokenizer(write_folder(Path(folder), _build_spec(pattern, next_steps))).encoder
        except ModelError:
            return
    for text in map("".join, texts):
        ids = encode_text(encoder, text)
        for cut in range(1, len(text)):
            kept_ids = find_heal_point(encoder, text[:cut]).kept_ids
            assert ids[: len(kept_ids)] == kept_ids, (pattern, next_steps, text[:cut])


def _build_spec(pattern: str, next_steps: str) -> Any:
    return spec_of("qwen", pre_tokenizer=sequence(split(pattern), *_NEXT_STEPS[next_steps]))


def test_a_panic_of_the_library_is_an_error_of_the_tokenizer_and_of_the_text(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the tokenizers library fails on a text"):  # on the sample
        load_tokenizer(write_folder(tmp_path, _build_spec("(a+)+!", "bytes")))
    for spec in (_build_spec("(z+)+!", "bytes"), spec_of("llama2", pre_tokenizer=split("(z+)+!"))):
        encoder = build_text_encoder(parse_tokenizer_file(spec))
        assert encode_text(encoder, "z z!")
        with pytest.raises(ModelError, match="the tokenizers library fails on a text"):
            find_heal_point(encoder, "z" * 60 + " ")


@pytest.mark.parametrize(
    ("kind", "lacks", "unspelled", "replacement"),
    [
        ("gpt2", "ÀÁñõö÷øùúûüýþÿ", "\U00040000", "\ufffd"),  # as StarCoder2's
        ("qwen", "ĄĆĵ", "\x04\x06", "\ufffd"),  # control characters, as SmolLM2's
        ("qwen", "½x", "x½\ufffd", " "),
        ("gpt2", "½Ġ", " \ufffd", "?"),
        ("llama2", ["<0xC3>", "<0xF0>"], "\xc0\U0001f600", "\ufffd"),
        ("llama2", ["<0xEF>", "<0xC3>"], "\xc0\ufffd", " "),
    ],
)
def test_characters_that_a_vocabulary_lacks_bytes_for_are_replaced_by_one_that_it_spells(
    kind: str, lacks: Sequence[str], unspelled: str, replacement: str, tmp_path: Path
) -> None:
    encoder = load_tokenizer(write_folder(tmp_path, spec_of(kind, lacks=lacks))).encoder

    for text in ("{}", "ab{}", "a\n{0}b-{0}", "\x05{}"):
        replaced = text.format(replacement * len(unspelled))
        assert encoder.replace_unspelled(text.format(unspelled)) == replaced
        assert encode_text(encoder, text.format(unspelled)) == encode_text(encoder, replaced)
    name = f"U\\+{ord(unspelled[-1]):04X}, character 1 from the end of the text"
    with pytest.raises(InvalidRequestError, match=f"the model's vocabulary cannot spell {name}"):
        encoder.encode_beginning(f"ab{unspelled}".encode())


def test_an_added_text_may_have_characters_that_no_other_token_spells(tmp_path: Path) -> None:
    """And an added token is not taken for that of a byte, though its name may be the byte's."""
    spec = spec_of("gpt2", lacks="xĄ", added=add("x=\x04", "Ą"))
    loaded = load_tokenizer(write_folder(tmp_path, spec))

    ids = encode_text(loaded.encoder, "a x=\x04 x\x04 Ą")

    spelled = b"".join(loaded.vocabulary.token_bytes[token_id] for token_id in ids)
    assert spelled.decode() == "a x=\x04 \ufffd\ufffd Ą"


def test_a_byte_token_may_be_the_character_itself(tmp_path: Path) -> None:
    spec = spec_of("llama2")
    spec["model"]["vocab"]["\t"] = spec["model"]["vocab"].pop("<0x09>")

    loaded = load_tokenizer(write_folder(tmp_path, spec))

    assert loaded.encoder.encode(b"\t") == (spec["model"]["vocab"]["\t"],)


def test_an_empty_piece_stands_for_no_byte(tmp_path: Path) -> None:
    spec = spec_of("llama2", lacks=["<0xC3>"])
    spec["model"]["vocab"][""] = len(spec["model"]["vocab"])

    loaded = load_tokenizer(write_folder(tmp_path, spec))

    assert loaded.encoder.find_unspelled("a\xc0") == [1]


def test_merges_that_join_words_are_refused_with_the_joined_word(tmp_path: Path) -> None:
    spec = spec_of("llama2")
    vocab = spec["model"]["vocab"]
    spec["model"]["merges"].append(["e", "▁"])
    vocab["e▁"] = len(vocab)

    with pytest.raises(ModelError, match=r"merges join words.*e▁"):
        load_tokenizer(write_folder(tmp_path, spec))


def test_long_digit_runs_are_open_to_their_beginning() -> None:
    toy = any_tokenizer("digits from the right")
    digits = "12345" * 12  # of which there are tokens, so that they depend on how digits are grouped

    for length in (12, 13, 14, 31, 60):
        kept_ids = find_heal_point(toy.encoder, f"x = {digits[:length]}").kept_ids

        for more in ("1", "22", "333", "a"):
            assert toy.encode(f"x = {digits[:length]}{more}")[: len(kept_ids)] == kept_ids


_BEGIN = {"bos_token": "<begin>"}


@pytest.mark.parametrize(
    ("written", "config", "end_ids", "expected"),
    [
        ((2, 1), _BEGIN | {"add_bos_token": True}, [1], (2, 1)),  # what the tokenizer itself writes comes first
        ((), _BEGIN | {"add_bos_token": True}, [1], (0,)),
        ((), {"bos_token": {"content": "<begin>"}, "add_bos_token": True}, [1], (0,)),
        ((), _BEGIN, [1], (1,)),  # the start token is named, but not asked for
        ((), {"bos_token": None, "add_bos_token": True}, [1], (1,)),
        (
            (),
            {"bos_token": "<no>", "add_bos_token": True},
            [1],
            "begin with a token that its model does not have: '<no>'",
        ),
        ((), {}, [1], (1,)),
        ((), None, [1], (1,)),
        ((), _BEGIN, [], (0,)),
        ((), {}, [], "names no token that a text begins or ends with"),
        ((3,), {}, [1], "begin with the token 3, but the model's head has 3 rows"),
    ],
)
def test_start_tokens_are_those_that_are_written_asked_for_or_named(
    written: tuple[int, ...], config: Any, end_ids: list[int], expected: tuple[int, ...] | str, tmp_path: Path
) -> None:
    vocabulary = Vocabulary.from_tokens({2: b"a"}, {"<begin>": 0, "<end>": 1}, end_ids)
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))

    if isinstance(expected, str):
        with pytest.raises(ModelError, match=expected):
            find_start_ids(written, tmp_path, vocabulary)
    else:
        assert find_start_ids(written, tmp_path, vocabulary) == expected
