"""Kinds of BPE over characters with byte fallback, as in SentencePiece."""

from benchmarks.corpora.tokenizers.kinds.training import (
    MARK,
    SENTENCEPIECE_BEGIN,
    SENTENCEPIECE_END,
    Json,
    TokenizerKind,
    add_tokens,
    change_model,
    digits,
    metaspace,
    normalizers,
    replace,
    sequence,
    split,
    template,
    train_sentencepiece,
)

_BLANK_TO_MARK = replace(" ", MARK)
_PREPEND = {"type": "Prepend", "prepend": MARK}
_LLAMA2 = normalizers(_PREPEND, _BLANK_TO_MARK)
_GEMMA_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
_CODELLAMA_MARKS = ("▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>")
_TAGS = ("<table>", "</table>", "<tr>", "</tr>", "<code>", "</code>", "<h1>", "</h1>")


def _build_gemma() -> Json:
    spec = train_sentencepiece(
        normalizer=_BLANK_TO_MARK, pre_tokenizer=_GEMMA_SPLIT, post_processor=template(SENTENCEPIECE_BEGIN, "$A")
    )
    spec = add_tokens(spec, ["\n" * count for count in range(1, 12)])
    spec = add_tokens(spec, [MARK * count for count in range(2, 12)])
    spec = add_tokens(spec, ["\t" * count for count in range(2, 8)])
    return add_tokens(add_tokens(spec, _TAGS), ["<start_of_turn>"], special=True)


def _build_mistral_v3() -> Json:
    spec = train_sentencepiece(pre_tokenizer=metaspace("first", False), post_processor=_begins())
    return add_tokens(spec, ["[INST]", "[/INST]", "[TOOL_CALLS]"], special=True)


def _build_codellama() -> Json:
    spec = train_sentencepiece(normalizer=_LLAMA2, post_processor=_begins())
    return add_tokens(spec, _CODELLAMA_MARKS, special=True)


def _begins() -> Json:
    return template(SENTENCEPIECE_BEGIN, "$A")


def _build_missing_byte() -> Json:
    spec = train_sentencepiece(normalizer=_LLAMA2)
    vocab = {piece: token_id for piece, token_id in spec["model"]["vocab"].items() if piece != "<0xC3>"}
    return change_model(spec, vocab=vocab)


def _build_no_bytes() -> Json:
    spec = train_sentencepiece(normalizer=_LLAMA2)
    vocab = {piece: token_id for piece, token_id in spec["model"]["vocab"].items() if not piece.startswith("<0x")}
    return change_model(spec, vocab=vocab, byte_fallback=False)


SENTENCEPIECE_KINDS = (
    TokenizerKind("llama2", lambda: train_sentencepiece(normalizer=_LLAMA2, post_processor=_begins())),
    TokenizerKind("codellama", _build_codellama),
    TokenizerKind("mistral-v3", _build_mistral_v3),
    TokenizerKind("gemma", _build_gemma),
    TokenizerKind("gemma1", lambda: train_sentencepiece(normalizer=_BLANK_TO_MARK)),
    *(
        TokenizerKind(
            f"metaspace-{scheme}{'-split' if does_split else ''}",
            lambda scheme=scheme, does_split=does_split: train_sentencepiece(  # type: ignore[misc]
                pre_tokenizer=metaspace(scheme, does_split)
            ),
        )
        for scheme in ("always", "first", "never")
        for does_split in (False, True)
    ),
    TokenizerKind(
        "sentencepiece-digits",
        lambda: train_sentencepiece(pre_tokenizer=sequence(metaspace("first", False), digits(individual=True))),
    ),
    TokenizerKind(
        "sentencepiece-split",
        lambda: train_sentencepiece(normalizer=_LLAMA2, pre_tokenizer=split(r"\d|[\r\n]+")),
    ),
    TokenizerKind(
        "sentencepiece-nfkc",
        lambda: train_sentencepiece(normalizer=normalizers({"type": "NFKC"}, _PREPEND, _BLANK_TO_MARK)),
    ),
    TokenizerKind(
        "sentencepiece-replace",
        lambda: train_sentencepiece(normalizer=normalizers(replace("\t", "    "), _PREPEND, _BLANK_TO_MARK)),
    ),
    TokenizerKind("sentencepiece-no-normalizer", train_sentencepiece),
    TokenizerKind("sentencepiece-joined-words", lambda: train_sentencepiece(joins_words=True, normalizer=_LLAMA2)),
    TokenizerKind(
        "sentencepiece-dropout", lambda: change_model(train_sentencepiece(normalizer=_LLAMA2), dropout=0.1)
    ),
    TokenizerKind("sentencepiece-missing-byte", _build_missing_byte),
    TokenizerKind("sentencepiece-no-bytes", _build_no_bytes),
    TokenizerKind(
        "sentencepiece-end-token",
        lambda: train_sentencepiece(
            normalizer=_LLAMA2, post_processor=template(SENTENCEPIECE_BEGIN, "$A", SENTENCEPIECE_END)
        ),
    ),
)  # fmt: skip
