"""Kinds of tokenizers by the settings of their models, by their templates, and models other than BPE with all bytes."""

from benchmarks.corpora.tokenizers.kinds.normalized import BERT_NORMALIZER
from benchmarks.corpora.tokenizers.kinds.training import (
    BEGIN,
    END,
    Json,
    TokenizerKind,
    byte_level,
    change_model,
    metaspace,
    template,
    train_affixed,
    train_byte_level,
    train_model,
)

_METASPACE = metaspace("always", True)


def _gpt2(**changes: Json) -> Json:
    return train_byte_level(byte_level(use_regex=True), **changes)


def _set(**settings: Json) -> Json:
    return change_model(_gpt2(), **settings)


def _drop(character: str, **settings: Json) -> Json:
    """Without a token for the byte that GPT-2's alphabet writes as `character`."""
    model = _gpt2()["model"]
    return _set(
        vocab={piece: token_id for piece, token_id in model["vocab"].items() if character not in piece},
        merges=[pair for pair in model["merges"] if character not in "".join(pair)],
        **settings,
    )


def _pad(direction: str) -> Json:
    return _gpt2(
        padding={
            "strategy": {"Fixed": 16}, "direction": direction, "pad_to_multiple_of": None,
            "pad_id": 1, "pad_type_id": 0, "pad_token": END,
        }
    )  # fmt: skip


def _truncate() -> Json:
    return _gpt2(truncation={"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0})


SETTING_KINDS = (
    TokenizerKind("dropout", lambda: _set(dropout=0.1)),
    TokenizerKind("dropout-zero", lambda: _set(dropout=0.0)),
    TokenizerKind("missing-byte", lambda: _drop("Ã")),  # the first byte of most accented letters
    TokenizerKind("missing-byte-unknown", lambda: _drop("Ã", unk_token=END)),
    TokenizerKind("missing-unused-byte", lambda: _drop("ÿ")),  # no UTF-8 text has it
    TokenizerKind("unknown-token-unused", lambda: _set(unk_token=END)),
    TokenizerKind("byte-fallback-unused", lambda: _set(byte_fallback=True)),
    TokenizerKind("end-of-word-suffix", lambda: train_affixed(suffix="</w>")),
    TokenizerKind("subword-prefix", lambda: train_affixed(prefix="##")),
    TokenizerKind("truncation", _truncate),
    TokenizerKind("padding-left", lambda: _pad("Left")),
    TokenizerKind("padding-right", lambda: _pad("Right")),
    TokenizerKind("start-token", lambda: _gpt2(post_processor=template(BEGIN, "$A"))),
    TokenizerKind("two-start-tokens", lambda: _gpt2(post_processor=template(BEGIN, END, "$A"))),
    TokenizerKind("start-and-end-token", lambda: _gpt2(post_processor=template(BEGIN, "$A", END))),
    TokenizerKind("end-token", lambda: _gpt2(post_processor=template("$A", END))),
    TokenizerKind("bpe-of-characters", lambda: train_model("BPE", {"type": "Whitespace"})),
    TokenizerKind("bpe-of-characters-metaspace", lambda: train_model("BPE", _METASPACE)),
    TokenizerKind("unigram", lambda: train_model("Unigram", _METASPACE)),
    TokenizerKind("unigram-bytes", lambda: change_model(train_model("Unigram", _METASPACE), byte_fallback=True)),
    TokenizerKind(
        "wordpiece", lambda: train_model("WordPiece", {"type": "BertPreTokenizer"}, normalizer=BERT_NORMALIZER)
    ),
    TokenizerKind("wordlevel", lambda: train_model("WordLevel", {"type": "Whitespace"})),
)
