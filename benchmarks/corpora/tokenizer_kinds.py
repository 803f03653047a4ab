"""Kinds of small tokenizers: those of models that people complete code with, and those that were wrong once.

The others each show one reason for which a tokenizer is refused.
"""

from collections.abc import Callable

from benchmarks.corpora.tokenizer_training import (
    BEGIN,
    END,
    MARK,
    SENTENCEPIECE_BEGIN,
    Json,
    TokenizerKind,
    add_tokens,
    byte_level,
    change_model,
    digits,
    metaspace,
    replace,
    sequence,
    split,
    template,
    train_byte_level,
    train_sentencepiece,
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
_DIGITS_FROM_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))"

_PRE_TOKENIZERS = {
    "gpt2": byte_level(use_regex=True),
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
    "falcon": sequence(
        {"type": "Punctuation", "behavior": "Contiguous"},
        byte_level(use_regex=True),
        digits(individual=False),
        split("[0-9][0-9][0-9]"),
    ),
    "digits-from-right": sequence(split(_DIGITS_FROM_RIGHT), byte_level(use_regex=True)),
    "unicode-scripts": sequence({"type": "UnicodeScripts"}, byte_level(use_regex=True)),
    "nested-sequences": sequence(sequence(digits(individual=True)), sequence(split(_QWEN2), byte_level())),
    "calls": sequence(split(r"\w+(?=\()|\w|\W+"), byte_level()),
    "addresses": sequence(split(r"[\w.]+@[\w.]+|\w+|\s+|[^\w\s]+"), byte_level()),
    "prefix-space": byte_level(use_regex=True, add_prefix_space=True),
    "whitespace": sequence({"type": "Whitespace"}, byte_level()),
}  # fmt: skip

_BLANK_TO_MARK = replace(" ", MARK)
_LLAMA2 = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, _BLANK_TO_MARK]}
_GEMMA_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
_BEGINS = template(SENTENCEPIECE_BEGIN, "$A")
_CODELLAMA_MARKS = ("▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>")
_TAGS = ("<table>", "</table>", "<tr>", "</tr>", "<code>", "</code>", "<h1>", "</h1>")
_WORDS = ("return", "self", "def", "für")
_OVERLAPPING = ("self.", "elf.x", "self", ".x", "x = ", " = ", "=", "ret", "return x", "eturn")
_FIM_MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<tool_call>", "</tool_call>")
_PADDING = {
    "strategy": {"Fixed": 16}, "direction": "Left", "pad_to_multiple_of": None,
    "pad_id": 1, "pad_type_id": 0, "pad_token": END,
}  # fmt: skip


def _gpt2(**changes: Json) -> Json:
    return train_byte_level(byte_level(use_regex=True), **changes)


def _change_gpt2(**settings: Json) -> Json:
    return change_model(_gpt2(), **settings)


def _drop_bytes(characters: str) -> Json:
    """Without tokens for the bytes that GPT-2's alphabet writes so."""
    model = _gpt2()["model"]
    vocab = {piece: token_id for piece, token_id in model["vocab"].items() if not {*characters} & {*piece}}
    merges = [pair for pair in model["merges"] if not {*characters} & {*"".join(pair)}]
    return _change_gpt2(vocab=vocab, merges=merges)


def _ignore_merges(pattern: str) -> Json:
    """Some whole words have a token that no merges make, and only the look-up before merging finds."""
    spec = train_byte_level(sequence(split(pattern), byte_level()), post_processor=template(BEGIN, "$A"))
    vocab = dict(spec["model"]["vocab"])
    words = {word for text in training_texts() for word in text.split() if word.isascii() and word.isalpha()}
    for word in sorted(words)[::8]:
        vocab.setdefault(word, len(vocab))
        vocab.setdefault("Ġ" + word, len(vocab))
    return change_model(spec, vocab=vocab, ignore_merges=True)


def _add_runs(spec: Json, *runs: tuple[str, int], **flags: bool) -> Json:
    """Runs of a character as added tokens, the longest first: from this length down to two."""
    return add_tokens(spec, [char * length for char, longest in runs for length in range(longest, 1, -1)], **flags)


def _build_gemma() -> Json:
    spec = train_sentencepiece(normalizer=_BLANK_TO_MARK, pre_tokenizer=_GEMMA_SPLIT, post_processor=_BEGINS)
    spec = add_tokens(_add_runs(spec, ("\n", 11), (MARK, 11), ("\t", 7)), ("\n", *_TAGS))
    return add_tokens(spec, ["<start_of_turn>"], special=True)


def _drop_byte_pieces(prefix: str, **settings: Json) -> Json:
    """Llama 2's without the pieces for bytes that begin so."""
    spec = train_sentencepiece(normalizer=_LLAMA2)
    vocab = {piece: token_id for piece, token_id in spec["model"]["vocab"].items() if not piece.startswith(prefix)}
    return change_model(spec, vocab=vocab, **settings)


_BUILDERS: dict[str, Callable[[], Json]] = {
    "qwen2": lambda: train_byte_level(sequence(split(_QWEN2), byte_level()), normalizer={"type": "NFC"}),
    "llama3": lambda: _ignore_merges(_CL100K),
    "tekken": lambda: _ignore_merges(_TEKKEN),
    # of characters with byte fallback, as in SentencePiece
    "llama2": lambda: train_sentencepiece(normalizer=_LLAMA2, post_processor=_BEGINS),
    "codellama": lambda: add_tokens(
        train_sentencepiece(normalizer=_LLAMA2, post_processor=_BEGINS), _CODELLAMA_MARKS, special=True
    ),
    "mistral-v3": lambda: add_tokens(
        train_sentencepiece(pre_tokenizer=metaspace("first", False), post_processor=_BEGINS),
        ["[INST]", "[/INST]", "[TOOL_CALLS]"],
        special=True,
    ),
    "gemma": _build_gemma,
    "gemma1": lambda: train_sentencepiece(normalizer=_BLANK_TO_MARK),
    "metaspace-always": lambda: train_sentencepiece(pre_tokenizer=metaspace("always", False)),
    "metaspace-first-split": lambda: train_sentencepiece(pre_tokenizer=metaspace("first", True)),
    "metaspace-never": lambda: train_sentencepiece(pre_tokenizer=metaspace("never", False)),
    "sentencepiece-digits": lambda: train_sentencepiece(
        pre_tokenizer=sequence(metaspace("first", False), digits(individual=True))
    ),
    "sentencepiece-joined-words": lambda: train_sentencepiece(joins_words=True, normalizer=_LLAMA2),
    "sentencepiece-no-normalizer": train_sentencepiece,
    "sentencepiece-missing-byte": lambda: _drop_byte_pieces("<0xC3>"),
    "sentencepiece-no-bytes": lambda: _drop_byte_pieces("<0x", byte_fallback=False),
    # with a normalizer
    "nfc": lambda: _gpt2(normalizer={"type": "NFC"}),
    "nfkc": lambda: _gpt2(normalizer={"type": "NFKC"}),
    "replace": lambda: _gpt2(normalizer=replace("\t", "    ")),
    # with added tokens that are ordinary text, which the tokenizer finds before everything else
    "gpt-neox": lambda: _add_runs(_gpt2(normalizer={"type": "NFC"}), (" ", 24), normalized=True),
    "phi": lambda: _add_runs(_gpt2(), (" ", 31), ("\t", 9)),
    "fim-marks": lambda: add_tokens(_gpt2(), _FIM_MARKS),
    "added-words": lambda: add_tokens(_gpt2(), _WORDS),
    "added-words-normalized": lambda: add_tokens(_gpt2(), _WORDS, normalized=True),
    "added-words-lstrip": lambda: add_tokens(_gpt2(), _WORDS, lstrip=True),
    "added-words-nfc": lambda: add_tokens(
        _gpt2(normalizer={"type": "NFC"}), ("ő", "a\u0308b"), normalized=True
    ),
    "added-words-llama2": lambda: add_tokens(train_sentencepiece(normalizer=_LLAMA2), _WORDS),
    "added-overlapping": lambda: add_tokens(_gpt2(), _OVERLAPPING),
    "added-long-run": lambda: add_tokens(_gpt2(), [" " * 200, "=" * 40, "\n" * 3]),
    # by the settings of the model, and by template
    "dropout": lambda: _change_gpt2(dropout=0.1),
    "end-of-word-suffix": lambda: _change_gpt2(end_of_word_suffix="</w>"),
    "byte-fallback-unused": lambda: _change_gpt2(byte_fallback=True),
    "missing-byte": lambda: _drop_bytes("Ã"),  # the first byte of most accented letters
    "missing-unused-byte": lambda: _drop_bytes("ÀÁñõö÷øùúûüýþÿ"),  # as StarCoder2's; no character has them
    "padding-left": lambda: _gpt2(padding=_PADDING),
    "two-start-tokens": lambda: _gpt2(post_processor=template(BEGIN, END, "$A")),
    "start-and-end-token": lambda: _gpt2(post_processor=template(BEGIN, "$A", END)),
    # other models than BPE with all bytes
    "characters": lambda: change_model(
        train_sentencepiece(pre_tokenizer=metaspace("always", True)), byte_fallback=False
    ),
    "unigram": lambda: _gpt2(model={"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.0]], "unk_id": 0}),
}  # fmt: skip

TOKENIZER_KINDS: tuple[TokenizerKind, ...] = (
    *(
        TokenizerKind(name, lambda pre_tokenizer=pre_tokenizer: train_byte_level(pre_tokenizer))  # type: ignore[misc]
        for name, pre_tokenizer in _PRE_TOKENIZERS.items()
    ),
    *(TokenizerKind(name, build) for name, build in _BUILDERS.items()),
)
