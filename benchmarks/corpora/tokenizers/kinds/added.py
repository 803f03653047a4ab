"""Kinds of tokenizers with added tokens that are ordinary text. The tokenizer finds them before everything else."""

from collections.abc import Callable

from benchmarks.corpora.tokenizers.kinds.training import (
    MARK,
    Json,
    TokenizerKind,
    add_tokens,
    byte_level,
    metaspace,
    normalizers,
    replace,
    train_byte_level,
    train_sentencepiece,
)

_WORDS = ("return", "self", "def", "für")
_OVERLAPPING = ("self.", "elf.x", "self", ".x", "x = ", " = ", "=", "ret", "return x", "eturn")
_LETTERS = ("ü", "ö", "ø", "÷")  # DeepSeek's first tokenizers have these
_PHRASES = ("\n    return ", "):\n", "if (", ", ", "\r\n", '"""', "  # ")
_LLAMA2 = normalizers({"type": "Prepend", "prepend": MARK}, replace(" ", MARK))


def _gpt2(**changes: Json) -> Json:
    return train_byte_level(byte_level(use_regex=True), **changes)


def _build_gpt_neox() -> Json:
    spec = _gpt2(normalizer={"type": "NFC"})
    return add_tokens(spec, [" " * count for count in range(24, 1, -1)], normalized=True)


def _build_phi() -> Json:
    spec = add_tokens(_gpt2(), [" " * count for count in range(31, 1, -1)])
    return add_tokens(spec, ["\t" * count for count in range(9, 1, -1)])


def _build_fim() -> Json:
    return add_tokens(_gpt2(), ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<tool_call>", "</tool_call>"])


def _add_words(**flags: bool) -> Callable[[], Json]:
    return lambda: add_tokens(_gpt2(), _WORDS, **flags)


def _add_to_sentencepiece(**changes: Json) -> Callable[[], Json]:
    return lambda: add_tokens(train_sentencepiece(**changes), _WORDS)


ADDED_TOKEN_KINDS = (
    TokenizerKind("gpt-neox", _build_gpt_neox),
    TokenizerKind("phi", _build_phi),
    TokenizerKind("fim-marks", _build_fim),
    TokenizerKind("added-words", _add_words()),
    TokenizerKind("added-words-normalized", _add_words(normalized=True)),
    TokenizerKind("added-words-lstrip", _add_words(lstrip=True)),
    TokenizerKind("added-words-rstrip", _add_words(rstrip=True)),
    TokenizerKind("added-words-single", _add_words(single_word=True)),
    TokenizerKind(
        "added-words-nfc", lambda: add_tokens(_gpt2(normalizer={"type": "NFC"}), ("ő", "a\u0308b"), normalized=True)
    ),
    TokenizerKind(
        "added-words-lowercase",
        lambda: add_tokens(_gpt2(normalizer={"type": "Lowercase"}), _WORDS, normalized=True),
    ),
    TokenizerKind(
        "added-words-prefix-space",
        lambda: add_tokens(train_byte_level(byte_level(use_regex=True, add_prefix_space=True)), _WORDS),
    ),
    TokenizerKind("added-letters", lambda: add_tokens(_gpt2(), _LETTERS, normalized=True)),
    TokenizerKind("added-overlapping", lambda: add_tokens(_gpt2(), _OVERLAPPING)),
    TokenizerKind("added-phrases", lambda: add_tokens(_gpt2(), _PHRASES)),
    TokenizerKind("added-long-run", lambda: add_tokens(_gpt2(), [" " * 200, "=" * 40, "\n" * 3])),
    TokenizerKind("added-words-llama2", _add_to_sentencepiece(normalizer=_LLAMA2)),
    TokenizerKind("added-words-gemma1", _add_to_sentencepiece(normalizer=replace(" ", MARK))),
    TokenizerKind("added-words-metaspace-always", _add_to_sentencepiece(pre_tokenizer=metaspace("always", False))),
    TokenizerKind("added-words-metaspace-first", _add_to_sentencepiece(pre_tokenizer=metaspace("first", False))),
    TokenizerKind("added-words-metaspace-never", _add_to_sentencepiece(pre_tokenizer=metaspace("never", True))),
)
