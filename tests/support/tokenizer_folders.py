"""Model folders with a changed tokenizer, and the product's objects for them."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer

from inference.healing.loaded_tokenizer import load_tokenizer
from tests.support.toys import END, FIM_NAMES, KINDS, SENTENCEPIECE_KINDS, ToyTokenizer, toy_tokenizer

_Json = Any  # the content of a tokenizer.json

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def spec_of(kind: str, **changes: _Json) -> _Json:
    """Returns the `tokenizer.json` of a toy with other parts. `model` and `added` are added to what is there.

    `lacks`: the pieces with one of these strings are left out.
    """
    spec = json.loads(toy_tokenizer(kind).tokenizer.to_str())
    lacks, model = changes.pop("lacks", ()), spec["model"]
    names = {token["content"] for token in spec["added_tokens"]}
    pieces = [piece for piece in model["vocab"] if piece in names or not any(part in piece for part in lacks)]
    model["vocab"] = {piece: i for i, piece in enumerate(sorted(pieces, key=model["vocab"].__getitem__))}
    model["merges"] = [pair for pair in model["merges"] if not any(part in "".join(pair) for part in lacks)]
    spec["model"] |= changes.pop("model", {})
    vocab, flags = spec["model"]["vocab"], ("single_word", "lstrip", "rstrip", "normalized", "special")
    for token in changes.pop("added", []):
        next_id = 1 + max(*vocab.values(), *(other["id"] for other in spec["added_tokens"]))
        token_id = vocab.get(token["content"], next_id)
        spec["added_tokens"].append(dict.fromkeys(flags, False) | {"id": token_id} | token)
    return spec | changes


def split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> _Json:
    """Returns a pre-tokenizer step that splits by a regular expression."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps: _Json) -> _Json:
    """Returns a pre-tokenizer of several steps."""
    return {"type": "Sequence", "pretokenizers": list(steps)}


def add(*contents: str, **flags: int) -> list[_Json]:
    """Returns items of `added_tokens`."""
    return [{"content": content, **flags} for content in contents]


def write_folder(folder: Path, spec: _Json) -> Path:
    """Writes the files that belong to a tokenizer."""
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    return folder


def read_spec(kind: str) -> _Json:
    """Returns the `tokenizer.json` of one of KINDS or SPECIAL_KINDS."""
    return spec_of(**SPECIAL_KINDS.get(kind, {"kind": kind}))


@cache
def any_tokenizer(kind: str) -> ToyTokenizer:
    """One of KINDS or SPECIAL_KINDS. Text that looks like a control token is text in both encoders of it."""
    if kind in KINDS:
        return toy_tokenizer(kind)
    spec = read_spec(kind)
    with TemporaryDirectory() as folder:
        loaded = load_tokenizer(write_folder(Path(folder), spec))
    marks = (END, *FIM_NAMES, "<|begin_of_text|>", "<unk>", "<tool_call>", "<s>", "</s>", "<|end|>")
    texts = [token for token in spec["added_tokens"] if token["content"] not in marks]
    plain = Tokenizer.from_str(json.dumps({**spec, "added_tokens": texts, "post_processor": None}))
    plain.no_truncation()
    plain.no_padding()
    ids = {token_id: token["id"] for token in texts if (token_id := plain.token_to_id(token["content"])) is not None}
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    return ToyTokenizer(kind, tokenizer, plain, loaded.encoder, loaded.vocabulary, loaded.trie, ids)


def is_judged(kind: str, text: str) -> bool:
    """False for the differences that are intended: a typed U+2581, and text that looks like a control token."""
    base = SPECIAL_KINDS.get(kind, {"kind": kind})["kind"]
    return bool(text) and not (base in SENTENCEPIECE_KINDS and "▁" in text) and "<tool_call>" not in text


_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN3_5 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _BLANKS
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _BLANKS
)
_CJK = "[一-龥\u0800-一가-\ud7ff]+"
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
_DIGITS_FROM_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\p{L}+|\s+|[^\s\p{L}\p{N}]+"
_GEMMA_SPLIT = {
    "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False
}  # fmt: skip
_BLANK_TO_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
_RUNS = [" " * count for count in range(2, 9)] + ["\t" * count for count in range(2, 5)]
_DIGITS = {"type": "Digits", "individual_digits": True}
_NUMBERS = [f"{number:02}" for number in range(100)]  # of which no token is made where digits stand alone
_NFC = {"type": "NFC"}

SPECIAL_KINDS: dict[str, dict[str, _Json]] = {
    "falcon": {
        "kind": "gpt2",
        "pre_tokenizer": sequence(
            {"type": "Punctuation", "behavior": "Contiguous"},
            {**BYTE_LEVEL, "use_regex": True},
            {"type": "Digits", "individual_digits": False},
            split("[0-9][0-9][0-9]"),
        ),
    },
    "starcoder": {"kind": "gpt2", "pre_tokenizer": sequence(_DIGITS, {**BYTE_LEVEL, "use_regex": True})},
    "qwen 3.5": {"kind": "qwen", "normalizer": _NFC, "pre_tokenizer": sequence(split(_QWEN3_5), BYTE_LEVEL)},
    "tekken": {"kind": "llama3", "pre_tokenizer": sequence(split(_TEKKEN), BYTE_LEVEL)},
    "deepseek-coder": {
        "kind": "gpt2",
        "lacks": _NUMBERS,
        "pre_tokenizer": sequence(
            *map(split, ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK)), _DIGITS, BYTE_LEVEL
        ),
    },
    "deepseek-llm": {
        "kind": "gpt2",
        "lacks": _NUMBERS,
        "pre_tokenizer": sequence(
            *map(split, ("[\r\n]", r"\s?\p{L}+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", _CJK)),
            *(_DIGITS, BYTE_LEVEL),
        ),
    },
    "deepseek-v3": {
        "kind": "gpt2",
        "pre_tokenizer": sequence(
            *map(split, (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", _DEEPSEEK_V3)), BYTE_LEVEL
        ),
    },
    "steps in steps": {
        "kind": "qwen", "pre_tokenizer": sequence(sequence(_DIGITS), sequence(split(_QWEN3_5), BYTE_LEVEL))
    },
    "bytes before digits": {"kind": "gpt2", "pre_tokenizer": sequence({**BYTE_LEVEL, "use_regex": True}, _DIGITS)},
    "digits from the right": {"kind": "llama3", "pre_tokenizer": sequence(split(_DIGITS_FROM_RIGHT), BYTE_LEVEL)},
    "bytes without tokens": {"kind": "gpt2", "lacks": [*"xÃä'Đñà"]},
    "U+FFFD without tokens": {"kind": "qwen", "lacks": [*"=½Ìä"], "added": add("a=")},
    "fallbacks without tokens": {"kind": "llama2", "lacks": ["<0xC3>", "<0xE4>", "<0xF0>"]},
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
    "overlapping words": {
        "kind": "gpt2",
        "added": add("self.", "elf.x", "self", ".x", "x = ", " = ", "=", "ret", "return x", "eturn", " " * 200),
    },
    "gemma 1": {"kind": "llama2", "normalizer": _BLANK_TO_MARK},
    "a blank before each text": {
        "kind": "metaspace",
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
    },
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
    "phi-3": {  # a text may look like </s>, which is text here as everywhere
        "kind": "llama2",
        "added": add("<s>", special=True) + add("</s>", rstrip=True) + add("<|end|>", special=True, rstrip=True),
    },
    "dropout of 0": {"kind": "qwen", "model": {"dropout": 0.0}},
}  # fmt: skip
"""Kinds that are right, by the name of a model family or of the part that is special."""

ALL_KINDS = (*KINDS, *SPECIAL_KINDS)
