"""Loads the tokenizer of a model folder: right, or refused with one sentence that names what is not supported."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from inference.errors import ModelError
from inference.healing.byte_level_encoder import ByteLevelEncoder
from inference.healing.continuation_check import check_reach
from inference.healing.sentencepiece_encoder import SentencePieceEncoder
from inference.healing.start_tokens import find_start_ids
from inference.healing.text_encoder import TextEncoder
from inference.healing.tokenizer_check import check_tokenizer
from inference.healing.tokenizer_file import TokenizerFile, read_tokenizer_file
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary, VocabularyError


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """A tokenizer, and the bytes of its tokens."""

    encoder: TextEncoder
    vocabulary: Vocabulary
    trie: Trie
    start_ids: tuple[int, ...]  # every text begins with these; at least one


def load_tokenizer(model_dir: Path, num_rows: int | None = None) -> LoadedTokenizer:
    """The tokenizer in `model_dir`, compared with what the `tokenizers` library makes of a sample.

    `num_rows`: the rows of the model's head; by default as `Vocabulary.from_folder` finds them.
    Raises ModelError if exact healing does not support it.
    """
    file = read_tokenizer_file(model_dir)
    with _naming_file(model_dir):
        encoder = build_text_encoder(file)
        vocabulary = Vocabulary.from_folder(model_dir, num_rows)
        check_tokenizer(file, encoder, vocabulary)
        check_reach(encoder)
    start_ids = find_start_ids(encoder.start_ids, model_dir, vocabulary)
    return LoadedTokenizer(encoder, vocabulary, Trie.build(vocabulary), start_ids)


def load_text_encoder(model_dir: Path) -> TextEncoder:
    """The text encoder of a folder's `tokenizer.json` alone, not compared. Raises ModelError."""
    file = read_tokenizer_file(model_dir)
    with _naming_file(model_dir):
        return build_text_encoder(file)


def build_text_encoder(file: TokenizerFile) -> TextEncoder:
    """The text encoder for a file. Raises ModelError if exact healing does not support it."""
    return SentencePieceEncoder(file) if file.is_sentencepiece else ByteLevelEncoder(file)


@contextmanager
def _naming_file(model_dir: Path) -> Iterator[None]:
    """Inside the context, a refusal gets the path of the file. The errors of a vocabulary name theirs."""
    try:
        yield
    except VocabularyError as error:
        raise ModelError(str(error)) from error
    except ModelError as error:
        raise ModelError(f"{model_dir / 'tokenizer.json'}: {error}") from None
