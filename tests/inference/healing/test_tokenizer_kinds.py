"""Every kind of tokenizer heals right, or is refused in the words of its file. The `tokenizers` library judges.

`python -m benchmarks.measures.tokenizer_check` does the same with fifty times as many cuts, and with real tokenizers.
"""

from pathlib import Path

import pytest

from benchmarks.corpora.kinds.training import TokenizerKind, training_texts
from benchmarks.corpora.tokenizer_kinds import TOKENIZER_KINDS, write_kind
from benchmarks.corpora.tokenizer_texts import draw_texts
from benchmarks.measures.tokenizer_check import REFUSED, RIGHT, Candidate, check_tokenizer

_NUM_CUTS = 60
_NUM_TEXTS = 20

_REFUSED = {
    # pre-tokenizers that drop or change text
    "whitespace": "pre_tokenizer",
    "whitespace-split": "pre_tokenizer",
    "char-delimiter": "pre_tokenizer",
    "blanks-removed": "pre_tokenizer",
    "unicode-scripts": "otherwise than this tokenizer",
    # normalizers that change text
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
    "lowercase": "Lowercase",
    "strip-accents": "NFD",
    "strip": "Strip",
    "prepend": "Prepend",
    "replace": "Replace",
    "replace-line-ends": "Replace",
    "bert-normalizer": "BertNormalizer",
    "nmt": "Nmt",
    "byte-level-normalizer": "ByteLevel",
    "sentencepiece-nfkc": "NFKC",
    "sentencepiece-replace": "Replace",
    # added tokens
    "added-words-lstrip": "lstrip",
    "added-words-rstrip": "rstrip",
    "added-words-single": "single_word",
    "added-words-lowercase": "Lowercase",
    "added-words-nfc": "token",
    "added-words-prefix-space": "added token 'return'",
    "added-words-llama2": "added token 'return'",
    "added-words-metaspace-always": "added token 'return'",
    "added-words-metaspace-first": "added token 'return'",
    # settings of the model
    "dropout": "dropout",
    "sentencepiece-dropout": "dropout",
    "end-of-word-suffix": "end_of_word_suffix",
    "subword-prefix": "continuing_subword_prefix",
    "missing-byte": "0xC3",
    "missing-byte-unknown": "0xC3",
    "byte-fallback-unused": "byte_fallback",
    "sentencepiece-missing-byte": "<0xC3>",
    "sentencepiece-no-bytes": "Prepend",
    "sentencepiece-no-normalizer": "blank",
    # other models
    "bpe-of-characters": "pre_tokenizer",
    "bpe-of-characters-metaspace": "pre_tokenizer",
    "unigram": "Unigram",
    "unigram-bytes": "Unigram",
    "wordpiece": "WordPiece",
    "wordlevel": "WordLevel",
}


@pytest.mark.parametrize("kind", TOKENIZER_KINDS, ids=lambda kind: kind.name)
def test_a_kind_of_tokenizer_is_right_or_refused_by_name(kind: TokenizerKind, tmp_path: Path) -> None:
    texts = draw_texts([training_texts()], _NUM_TEXTS, seed=0)

    row = check_tokenizer(Candidate(kind.name, "built", write_kind(kind, tmp_path / kind.name)), texts, _NUM_CUTS)

    expected = REFUSED if kind.name in _REFUSED else RIGHT
    assert (row.outcome, row.num_cuts) == (expected, 0 if expected == REFUSED else _NUM_CUTS), row.reason
    assert _REFUSED.get(kind.name, "") in row.reason


def test_at_least_thirty_kinds_are_right() -> None:
    names = {kind.name for kind in TOKENIZER_KINDS}

    assert len(names) == len(TOKENIZER_KINDS)
    assert _REFUSED.keys() < names
    assert len(names - _REFUSED.keys()) >= 30
