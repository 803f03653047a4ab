"""Every kind of tokenizer heals right, compared with the `tokenizers` library, or is refused in the words of its file.

`make test-models` does the same with fifty times as many cuts, and with real tokenizers.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.corpora.awkward_text import draw_texts
from benchmarks.corpora.tokenizer_kinds import TOKENIZER_KINDS
from benchmarks.corpora.tokenizer_training import TokenizerKind, training_texts, write_kind
from benchmarks.measures.report import Outcome
from benchmarks.measures.tokenizer_check import TokenizerFolder, TokenizerRow, check_folder

_NUM_CUTS = 60
_NUM_TEXTS = 20

_REFUSED = {
    # pre-tokenizers that drop or change text
    "whitespace": "pre_tokenizer",
    "unicode-scripts": "otherwise than this tokenizer",
    # normalizers that change text
    "nfkc": "NFKC",
    "replace": "Replace",
    # added tokens
    "added-words-lstrip": "lstrip",
    "added-words-nfc": "token",
    "added-words-llama2": "added token 'return'",
    # settings of the model
    "dropout": "dropout",
    "end-of-word-suffix": "end_of_word_suffix",
    "byte-fallback-unused": "byte_fallback",
    "sentencepiece-no-bytes": "Prepend",
    "sentencepiece-no-normalizer": "blank",
    # other models
    "characters": "pre_tokenizer",
    "unigram": "Unigram",
}

# Pre-tokenizers that no known model has: a character moves boundaries far before it. So each is right or refused.
_UNUSUAL = ("calls", "addresses")
_NUM_UNUSUAL_CUTS = 240
_UNUSUAL_TEXTS = 4 * [
    f'{word} = join("{word} {word}", ab.{word}@cd.ef, "a b") + print("", " ", "a b", fill(a.b@c.org))\n'
    for word in ("a", "text", "join", "self", "x1", "café", "print", "return", "ab", "中文")
]


def _check(kind: TokenizerKind, folder: Path, texts: Sequence[str], num_cuts: int) -> TokenizerRow:
    return check_folder(TokenizerFolder(kind.name, "built", write_kind(kind, folder)), texts, num_cuts)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="they are trained on the standard library")
@pytest.mark.parametrize(
    "kind", [kind for kind in TOKENIZER_KINDS if kind.name not in _UNUSUAL], ids=lambda kind: kind.name
)
def test_a_kind_of_tokenizer_is_right_or_refused_by_name(kind: TokenizerKind, tmp_path: Path) -> None:
    row = _check(kind, tmp_path, draw_texts([training_texts()], _NUM_TEXTS, seed=0), _NUM_CUTS)

    expected = (Outcome.REFUSED, 0) if kind.name in _REFUSED else (Outcome.RIGHT, _NUM_CUTS)
    assert (row.outcome, row.num_cuts) == expected, row.reason
    assert _REFUSED.get(kind.name, "") in row.reason


@pytest.mark.parametrize(
    "kind", [kind for kind in TOKENIZER_KINDS if kind.name in _UNUSUAL], ids=lambda kind: kind.name
)
def test_an_unusual_pre_tokenizer_is_right_or_refused(kind: TokenizerKind, tmp_path: Path) -> None:
    row = _check(kind, tmp_path, _UNUSUAL_TEXTS, _NUM_UNUSUAL_CUTS)

    assert row.outcome in (Outcome.RIGHT, Outcome.REFUSED), row.reason
