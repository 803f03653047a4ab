"""Builds a tokenizer of the `tokenizers` library from the vocabulary of 151,643 tokens that benchmarks use.

`make` downloads the vocabulary; it is never committed. A tiktoken file lists tokens by rank, without merges. The merge
of a token is found by BPE: merging its bytes with the tokens of lower rank leaves two parts.
"""

from base64 import b64decode
from itertools import pairwise
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from inference.healing.vocabulary_file import BYTE_LEVEL_ALPHABET
from trie_cache.trie import Vocabulary

_VOCABULARY = Path("build/large-vocabulary/dashscope/resources/qwen.tiktoken")
_FOLDER = Path("build/large-tokenizer")

# Qwen2's pattern: that of GPT-4, except that each digit is a pre-token.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read_large_vocabulary() -> Vocabulary:
    """Reads the vocabulary.

    Raises SystemExit with the command to run if it has not been downloaded.
    """
    if not _VOCABULARY.exists():
        raise SystemExit(f"{_VOCABULARY} is missing: make {_VOCABULARY}")
    pairs = (line.split() for line in _VOCABULARY.read_bytes().splitlines())
    return Vocabulary.from_tokens({int(rank): b64decode(token) for token, rank in pairs}, {})


def build_large_folder() -> Path:
    """Returns a folder with the vocabulary's `tokenizer.json`, which the first call makes.

    Raises SystemExit with the command to run if the vocabulary has not been downloaded.
    """
    path = _FOLDER / "tokenizer.json"
    if not path.exists():
        _FOLDER.mkdir(exist_ok=True)
        build_tokenizer(read_large_vocabulary().token_bytes).save(str(path))
    return _FOLDER


def build_tokenizer(token_bytes: tuple[bytes, ...]) -> Tokenizer:
    """Builds byte-level BPE from tokens in the order of their ranks, with Qwen2's pattern and no special tokens."""
    ranks = {token: rank for rank, token in enumerate(token_bytes)}
    names = {token: "".join(BYTE_LEVEL_ALPHABET[byte] for byte in token) for token in ranks}
    merges = [
        (names[left], names[right])
        for token in token_bytes
        if len(token) > 1
        for left, right in [_find_merge(token, ranks)]
    ]
    tokenizer = Tokenizer(BPE({names[token]: rank for token, rank in ranks.items()}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _find_merge(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """Returns the two parts that are merged last when `token` is built from its bytes."""
    parts = [token[index : index + 1] for index in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(left + right, len(ranks)) for left, right in pairwise(parts)]
        first = min(range(len(pairs)), key=pairs.__getitem__)
        parts[first : first + 2] = [parts[first] + parts[first + 1]]
    return parts[0], parts[1]
