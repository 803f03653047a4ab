"""Trains small tokenizers. A kind is a trained `tokenizer.json` with changes."""

import copy
import inspect
import json
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers, trainers

Json = Any  # the content of a `tokenizer.json`, whose parts have many shapes

BEGIN, END = "<|begin|>", "<|end|>"
SENTENCEPIECE_BEGIN, SENTENCEPIECE_END, UNKNOWN = "<s>", "</s>", "<unk>"
MARK = "▁"  # SentencePiece's mark for a blank

_NUM_TOKENS = 640
_MAX_TOKEN_LENGTH = 16
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_OTHER_TEXT = (
    "café naïve Straße für 中文字符 日本語 12345 2024 don't they're we'll 'tis\r\n\tx = [0, 1];\r\n"
    "<table><tr>  </tr></table>\n\n\n        return    -1, 3.14159\n\t\t\tif (a==b) {}\n"
    'a.b@c.org, ab.cd@ef.de; join(x), f("", "ab"), print("", " ", "a b")\n'
)


@dataclass(frozen=True, slots=True)
class TokenizerKind:
    """A kind of tokenizer, as `tokenizer.json` names its parts."""

    name: str
    build: Callable[[], Json]  # the content of its `tokenizer.json`


def write_kind(kind: TokenizerKind, folder: Path) -> Path:
    """Writes the tokenizer's files as a model folder has them. Returns the folder."""
    spec = kind.build()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    names = {added["content"] for added in spec["added_tokens"]}
    end = END if END in names else SENTENCEPIECE_END
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}), encoding="utf-8")
    return folder


def describe_kind(kind: TokenizerKind) -> str:
    """The parts of the tokenizer, as its file names them."""
    spec = kind.build()
    names = [*_iter_names(spec["normalizer"]), *_iter_names(spec["pre_tokenizer"]), spec["model"]["type"]]
    return "built: " + ", ".join(names)


def _iter_names(step: Json) -> Iterator[str]:
    if step is not None and step["type"] == "Sequence":
        for inner in step.get("normalizers", step.get("pretokenizers")):
            yield from _iter_names(inner)
    elif step is not None:
        yield step["type"]


def byte_level(use_regex: bool = False, add_prefix_space: bool = False) -> Json:
    """The step that writes each byte as one character of GPT-2's alphabet."""
    return {**_BYTE_LEVEL, "use_regex": use_regex, "add_prefix_space": add_prefix_space}


def split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> Json:
    """A pre-tokenizer step that splits by a regular expression."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def metaspace(prepend_scheme: str, does_split: bool) -> Json:
    """A pre-tokenizer step that writes blanks as U+2581 and may put one before the text."""
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": prepend_scheme, "split": does_split}


def digits(individual: bool) -> Json:
    """A pre-tokenizer step that separates digits, or runs of them, from other text."""
    return {"type": "Digits", "individual_digits": individual}


def sequence(*steps: Json) -> Json:
    """Pre-tokenizer steps, one after the other."""
    return {"type": "Sequence", "pretokenizers": list(steps)}


def replace(pattern: str, content: str) -> Json:
    """A normalizer or decoder step that replaces a string."""
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def template(*parts: str) -> Json:
    """A post-processor that puts special tokens around a text; `$A` is the text."""
    single = [
        {"Sequence": {"id": "A", "type_id": 0}} if part == "$A" else {"SpecialToken": {"id": part, "type_id": 0}}
        for part in parts
    ]
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {}}


def train_byte_level(pre_tokenizer: Json, /, **changes: Json) -> Json:
    """A byte-level BPE tokenizer. `changes` replace parts of its file, e.g. `normalizer`."""
    return _change(_train_byte_level(json.dumps(pre_tokenizer)), **changes)


def train_sentencepiece(joins_words: bool = False, **changes: Json) -> Json:
    """A BPE tokenizer of characters with byte fallback, without a normalizer and a pre-tokenizer.

    `joins_words`: tokens may contain a blank after another character.
    """
    return _change(_train_sentencepiece(joins_words), **changes)


def change_model(spec: Json, **changes: Json) -> Json:
    """The same tokenizer with other settings of its model, e.g. `dropout`."""
    return _change(spec, model={**spec["model"], **changes})


def add_tokens(spec: Json, contents: Iterable[str], **flags: bool) -> Json:
    """The same tokenizer with added tokens. `flags` are those of the file; all are false by default."""
    spec = copy.deepcopy(spec)
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    known_ids = dict(spec["model"]["vocab"])
    known_ids |= {added["content"]: added["id"] for added in spec["added_tokens"]}
    for content in contents:
        token_id = known_ids.setdefault(content, 1 + max(known_ids.values()))
        added = {name: flags.get(name, False) for name in names}
        spec["added_tokens"].append({"id": token_id, "content": content, **added})
    return spec


def training_texts() -> list[str]:
    """Code, and a little other text."""
    return [inspect.getsource(textwrap), inspect.getsource(tokenize), _OTHER_TEXT * 20]


def _change(spec: Json, **changes: Json) -> Json:
    spec = copy.deepcopy(spec) | changes
    processor = spec["post_processor"]
    if processor and processor["type"] == "TemplateProcessing":  # the file repeats the ids
        ids = {added["content"]: added["id"] for added in spec["added_tokens"]}
        used = {part["SpecialToken"]["id"] for part in processor["single"] if "SpecialToken" in part}
        processor["special_tokens"] = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in used}
    return spec


@cache
def _train_byte_level(pre_tokenizer: str) -> Json:
    spec = _train(
        json.loads(pre_tokenizer),
        trainers.BpeTrainer(
            vocab_size=_NUM_TOKENS,
            max_token_length=_MAX_TOKEN_LENGTH,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[BEGIN, END],
            show_progress=False,
        ),
    )
    return {**spec, "decoder": byte_level()}


@cache
def _train_sentencepiece(joins_words: bool) -> Json:
    specials = [UNKNOWN, SENTENCEPIECE_BEGIN, SENTENCEPIECE_END]
    pattern = f"{MARK}*[^{MARK}]*(?:{MARK}[^{MARK}]+)?" if joins_words else f"{MARK}*[^{MARK}]*"
    trainer = trainers.BpeTrainer(
        vocab_size=_NUM_TOKENS - 256,
        max_token_length=_MAX_TOKEN_LENGTH,
        limit_alphabet=110,
        special_tokens=specials,
        show_progress=False,
    )
    spec = _train(split(pattern), trainer, replace(" ", MARK))
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [word for word in spec["model"]["vocab"] if word not in specials]
    model = {
        **spec["model"],
        "vocab": {piece: index for index, piece in enumerate([*specials, *pieces, *words])},
        "byte_fallback": True,
        "fuse_unk": True,
        "unk_token": UNKNOWN,
    }
    steps = [replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    decoder = {"type": "Sequence", "decoders": steps}
    return {**spec, "model": model, "normalizer": None, "pre_tokenizer": None, "decoder": decoder}


def _train(pre_tokenizer: Json, trainer: Json, normalizer: Json = None) -> Json:
    empty = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }
    tokenizer = Tokenizer.from_str(json.dumps(empty))
    tokenizer.train_from_iterator(training_texts(), trainer)
    return json.loads(tokenizer.to_str())
