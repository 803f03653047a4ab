"""Kinds of byte-level BPE with normalizers, added tokens, templates and other settings; and other models."""

from collections.abc import Callable

from benchmarks.corpora.kinds.training import (
    BEGIN,
    END,
    MARK,
    Json,
    TokenizerKind,
    add_tokens,
    byte_level,
    change_model,
    normalizers,
    replace,
    template,
    train_affixed,
    train_byte_level,
    train_model,
)

_GPT2 = byte_level(use_regex=True)
_METASPACE = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
_BERT = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
_WORDS = ("return", "self", "def", "für")

_NORMALIZERS: dict[str, Json] = {
    "nfc": {"type": "NFC"},
    "nfd": {"type": "NFD"},
    "nfkc": {"type": "NFKC"},
    "nfkd": {"type": "NFKD"},
    "lowercase": {"type": "Lowercase"},
    "strip-accents": normalizers({"type": "NFD"}, {"type": "StripAccents"}),
    "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "prepend": {"type": "Prepend", "prepend": " "},
    "replace": replace("\t", "    "),
    "bert-normalizer": _BERT,
    "nmt": {"type": "Nmt"},
    "no-normalizers": normalizers(),
}


def _gpt2(**changes: Json) -> Json:
    return train_byte_level(_GPT2, **changes)


def _build_gpt_neox() -> Json:
    spec = _gpt2(normalizer={"type": "NFC"})
    return add_tokens(spec, [" " * count for count in range(24, 1, -1)], normalized=True)


def _build_phi() -> Json:
    spec = add_tokens(_gpt2(), [" " * count for count in range(31, 1, -1)])
    return add_tokens(spec, ["\t" * count for count in range(9, 1, -1)])


def _build_fim() -> Json:
    return add_tokens(_gpt2(), ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<tool_call>", "</tool_call>"])


def _build_missing_byte() -> Json:
    """Without a token for the first byte of most accented letters."""
    return change_model(_gpt2(), **_without_piece("Ã"))


def _build_missing_unused_byte() -> Json:
    """Without a token for a byte that no UTF-8 text has."""
    return change_model(_gpt2(), **_without_piece("ÿ"))


def _without_piece(character: str) -> Json:
    model = _gpt2()["model"]
    return {
        "vocab": {piece: token_id for piece, token_id in model["vocab"].items() if character not in piece},
        "merges": [pair for pair in model["merges"] if character not in "".join(pair)],
    }


def _add_words(**flags: bool) -> Callable[[], Json]:
    return lambda: add_tokens(_gpt2(), _WORDS, **flags)


def _pad(direction: str) -> Json:
    return _gpt2(
        padding={
            "strategy": {"Fixed": 16}, "direction": direction, "pad_to_multiple_of": None,
            "pad_id": 1, "pad_type_id": 0, "pad_token": END,
        }
    )  # fmt: skip


def _truncate() -> Json:
    return _gpt2(truncation={"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0})


def _build_bpe_of_characters() -> Json:
    return train_model("BPE", {"type": "Whitespace"})


CHANGED_KINDS = (
    *(
        TokenizerKind(name, lambda normalizer=normalizer: _gpt2(normalizer=normalizer))  # type: ignore[misc]
        for name, normalizer in _NORMALIZERS.items()
    ),
    TokenizerKind(
        "byte-level-normalizer",
        lambda: train_byte_level(byte_level(), normalizer={"type": "ByteLevel"}, pre_tokenizer=None),
    ),
    TokenizerKind("gpt-neox", _build_gpt_neox),
    TokenizerKind("phi", _build_phi),
    TokenizerKind("fim-marks", _build_fim),
    TokenizerKind("added-words", _add_words()),
    TokenizerKind("added-words-normalized", _add_words(normalized=True)),
    TokenizerKind("added-words-lstrip", _add_words(lstrip=True)),
    TokenizerKind("added-words-rstrip", _add_words(rstrip=True)),
    TokenizerKind("added-words-single", _add_words(single_word=True)),
    TokenizerKind("added-letters", lambda: add_tokens(_gpt2(), ("ü", "ö", "ø", "÷"), normalized=True)),
    TokenizerKind(
        "added-words-lowercase",
        lambda: add_tokens(_gpt2(normalizer={"type": "Lowercase"}), _WORDS, normalized=True),
    ),
    TokenizerKind("dropout", lambda: change_model(_gpt2(), dropout=0.1)),
    TokenizerKind("dropout-zero", lambda: change_model(_gpt2(), dropout=0.0)),
    TokenizerKind("missing-byte", _build_missing_byte),
    TokenizerKind("missing-unused-byte", _build_missing_unused_byte),
    TokenizerKind("end-of-word-suffix", lambda: train_affixed(suffix="</w>")),
    TokenizerKind("subword-prefix", lambda: train_affixed(prefix="##")),
    TokenizerKind("truncation", _truncate),
    TokenizerKind("padding-left", lambda: _pad("Left")),
    TokenizerKind("padding-right", lambda: _pad("Right")),
    TokenizerKind("start-token", lambda: _gpt2(post_processor=template(BEGIN, "$A"))),
    TokenizerKind("two-start-tokens", lambda: _gpt2(post_processor=template(BEGIN, END, "$A"))),
    TokenizerKind("start-and-end-token", lambda: _gpt2(post_processor=template(BEGIN, "$A", END))),
    TokenizerKind("end-token", lambda: _gpt2(post_processor=template("$A", END))),
    TokenizerKind("bpe-of-characters", _build_bpe_of_characters),
    TokenizerKind("unigram", lambda: train_model("Unigram", _METASPACE)),
    TokenizerKind("unigram-bytes", lambda: change_model(train_model("Unigram", _METASPACE), byte_fallback=True)),
    TokenizerKind("wordpiece", lambda: train_model("WordPiece", {"type": "BertPreTokenizer"}, normalizer=_BERT)),
    TokenizerKind("wordlevel", lambda: train_model("WordLevel", {"type": "Whitespace"})),
)
