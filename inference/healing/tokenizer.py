"""Loads the tokenizer of a model folder."""

from dataclasses import dataclass
from pathlib import Path

from inference.errors import ModelError
from inference.healing.text_encoder import TextEncoder, load_text_encoder
from trie_cache.errors import TrieCacheError
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """A tokenizer, and the bytes of its tokens."""

    encoder: TextEncoder
    vocabulary: Vocabulary
    trie: Trie
    start_ids: tuple[int, ...]  # every text begins with these; at least one


def load_tokenizer(model_dir: Path, num_rows: int | None = None) -> LoadedTokenizer:
    """The tokenizer in `model_dir`. Raises ModelError if exact healing does not support it.

    `num_rows`: the rows of the model's head; by default as `Vocabulary.from_folder` finds them.
    """
    encoder = load_text_encoder(model_dir)
    try:
        vocabulary = Vocabulary.from_folder(model_dir, num_rows)
    except TrieCacheError as error:
        raise ModelError(str(error)) from error
    start_ids = encoder.start_ids or tuple(sorted(vocabulary.end_ids))[:1]
    if not start_ids:
        raise ModelError(f"{model_dir} names no token that a text begins or ends with")
    return LoadedTokenizer(encoder, vocabulary, Trie.build(vocabulary), start_ids)
