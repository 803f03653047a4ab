"""Kinds of byte-level BPE with a normalizer."""

from benchmarks.corpora.tokenizers.kinds.training import (
    Json,
    TokenizerKind,
    byte_level,
    normalizers,
    replace,
    train_byte_level,
)

BERT_NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
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
    "replace-line-ends": normalizers({"type": "NFC"}, replace("\r\n", "\n")),
    "bert-normalizer": BERT_NORMALIZER,
    "nmt": {"type": "Nmt"},
    "no-normalizers": normalizers(),
    "nested-normalizers": normalizers(normalizers({"type": "NFC"}), normalizers()),
}

NORMALIZED_KINDS = (
    *(
        TokenizerKind(
            name,
            lambda normalizer=normalizer: train_byte_level(  # type: ignore[misc]
                byte_level(use_regex=True), normalizer=normalizer
            ),
        )
        for name, normalizer in _NORMALIZERS.items()
    ),
    TokenizerKind(
        "byte-level-normalizer",
        lambda: train_byte_level(byte_level(), normalizer={"type": "ByteLevel"}, pre_tokenizer=None),
    ),
)
