"""Source text of this repository, for measurements on machines that have no other."""

from functools import cache
from pathlib import Path

from inference.healing.heal_point import encode_text
from inference.healing.text_encoder import TextEncoder
from trie_cache.vocabulary import Vocabulary

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("inference", "lsp_server", "midtoken", "trie_cache")
_CHARS_PER_TOKEN = 6  # more than texts have
_SHIFT = 4_999  # characters between the beginnings of two texts


def cut_text(encoder: TextEncoder, vocabulary: Vocabulary, num_tokens: int, index: int = 0) -> str:
    """A text of about so many tokens; another one for each `index`. Its last line is complete."""
    whole = read_repository()
    num_chars = _CHARS_PER_TOKEN * num_tokens
    repeated = whole * (1 + num_chars // len(whole))
    start = index * _SHIFT % len(whole)
    ids = encode_text(encoder, (repeated + whole)[start : start + num_chars])[:num_tokens]
    text = b"".join(vocabulary.token_bytes[token_id] for token_id in ids).decode(errors="ignore")
    return text.rpartition("\n")[0] + "\n"


@cache
def read_repository() -> str:
    """The source of all packages, one file after the other."""
    paths = sorted(path for folder in _FOLDERS for path in (_ROOT / folder).rglob("*.py"))
    return "".join(path.read_text(encoding="utf-8") for path in paths)
