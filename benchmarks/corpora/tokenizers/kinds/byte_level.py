"""Kinds of byte-level BPE, by pre-tokenizer."""

from benchmarks.corpora.tokenizers.kinds.training import (
    BEGIN,
    TokenizerKind,
    byte_level,
    change_model,
    digits,
    sequence,
    split,
    template,
    train_byte_level,
    training_texts,
)

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _BLANKS
_QWEN3_5 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _BLANKS
_CL100K = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|", 1)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _BLANKS
)
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _BLANKS
)
_CJK = "[一-龥\u0800-一가-\ud7ff]+"
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
_BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
_DIGITS_FROM_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))"
_DIGIT_RUNS = _CL100K.replace(r"\p{N}{1,3}", r"\p{N}+")
_GROUPS_FROM_RIGHT = r"(?=(\d{3})+(?!\d))"

_PRE_TOKENIZERS = {
    "gpt2": byte_level(use_regex=True),
    "cl100k": sequence(split(_CL100K, "Removed", invert=True), byte_level()),
    "o200k": sequence(split(_O200K, "Removed", invert=True), byte_level()),
    "qwen3.5": sequence(split(_QWEN3_5), byte_level()),
    "deepseek-v3": sequence(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(_DEEPSEEK_V3), byte_level()),
    "deepseek-coder": sequence(
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(_CJK), digits(individual=True), byte_level()
    ),
    "deepseek-llm": sequence(
        split("[\r\n]"),
        split(r"\s?\p{L}+"),
        split(r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+"),
        split(r"\s+$"),
        split(_CJK),
        digits(individual=True),
        byte_level(),
    ),
    "starcoder": sequence(digits(individual=True), byte_level(use_regex=True)),
    "digit-runs": sequence(digits(individual=False), byte_level(use_regex=True)),
    "bytes-before-digits": sequence(byte_level(use_regex=True), digits(individual=True)),
    "falcon": sequence(
        {"type": "Punctuation", "behavior": "Contiguous"},
        byte_level(use_regex=True),
        digits(individual=False),
        split("[0-9][0-9][0-9]"),
    ),
    "digits-from-right": sequence(split(_DIGITS_FROM_RIGHT), byte_level(use_regex=True)),
    "digit-groups-from-right": sequence(split(_DIGIT_RUNS), split(_GROUPS_FROM_RIGHT), byte_level()),
    "bloom": sequence(split(_BLOOM), byte_level()),
    "punctuation": sequence({"type": "Punctuation", "behavior": "Isolated"}, byte_level(use_regex=True)),
    "unicode-scripts": sequence({"type": "UnicodeScripts"}, byte_level(use_regex=True)),
    "fixed-length": sequence({"type": "FixedLength", "length": 5}, byte_level()),
    "nested-sequences": sequence(sequence(digits(individual=True)), sequence(split(_QWEN2), byte_level())),
    "untrimmed": {**byte_level(use_regex=True), "trim_offsets": False},
    "no-split": byte_level(),
    "lines": sequence(split(r"[^\n]*\n?"), byte_level()),
    "word-boundaries": sequence(split(r"\b"), byte_level()),
    "camel-case": sequence(split(r"(?<=[a-z])(?=[A-Z])"), byte_level(use_regex=True)),
    "calls": sequence(split(r"\w+(?=\()|\w|\W+"), byte_level()),
    "quoted-strings": sequence(split(r'"[^"\n]*"|\w+|\s+|[^\w\s"]+|"'), byte_level()),
    "addresses": sequence(split(r"[\w.]+@[\w.]+|\w+|\s+|[^\w\s]+"), byte_level()),
    "prefix-space": byte_level(use_regex=True, add_prefix_space=True),
    "whitespace": sequence({"type": "Whitespace"}, byte_level()),
    "whitespace-split": sequence({"type": "WhitespaceSplit"}, byte_level()),
    "char-delimiter": sequence({"type": "CharDelimiterSplit", "delimiter": " "}, byte_level()),
    "blanks-removed": sequence(split(r"\s+", "Removed"), byte_level()),
    "merged-with-next": sequence(split(" ", "MergedWithNext"), byte_level()),
    "merged-with-previous": sequence(split(r"\s", "MergedWithPrevious"), byte_level()),
    "contiguous": sequence(split(r"\s", "Contiguous"), byte_level()),
}  # fmt: skip


def _build_qwen2() -> object:
    return train_byte_level(sequence(split(_QWEN2), byte_level()), normalizer={"type": "NFC"})


def _build_llama3() -> object:
    return _ignore_merges(_CL100K)


def _build_tekken() -> object:
    return _ignore_merges(_TEKKEN)


def _ignore_merges(pattern: str) -> object:
    """Some whole words have a token that no merges make, and only the look-up before merging finds."""
    spec = train_byte_level(sequence(split(pattern), byte_level()), post_processor=template(BEGIN, "$A"))
    vocab = dict(spec["model"]["vocab"])
    words = {word for text in training_texts() for word in text.split() if word.isascii() and word.isalpha()}
    for word in sorted(words)[::8]:
        vocab.setdefault(word, len(vocab))
        vocab.setdefault("Ġ" + word, len(vocab))
    return change_model(spec, vocab=vocab, ignore_merges=True)


BYTE_LEVEL_KINDS = (
    TokenizerKind("qwen2", _build_qwen2),
    TokenizerKind("llama3", _build_llama3),
    TokenizerKind("tekken", _build_tekken),
    *(
        TokenizerKind(name, lambda pre_tokenizer=pre_tokenizer: train_byte_level(pre_tokenizer))  # type: ignore[misc]
        for name, pre_tokenizer in _PRE_TOKENIZERS.items()
    ),
)
