"""A model that is ready to run, with its tokenizer."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from inference.config import EngineConfig
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.healing.text_encoder import TextEncoder
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary


class ModelRunner(Protocol):
    """Runs the forward passes of one model. Each kind has further methods."""

    max_tokens: int  # the most tokens of one sequence
    vocab_size: int  # the number of logits of a row


RunnerT = TypeVar("RunnerT", bound=ModelRunner)


@dataclass(frozen=True, slots=True)
class LoadedModel(Generic[RunnerT]):
    """One model, its tokenizer and its vocabulary."""

    runner: RunnerT
    encoder: TextEncoder
    vocabulary: Vocabulary
    trie: Trie
    start_ids: tuple[int, ...]  # every text of this model begins with these


def add_tokenizer(config: EngineConfig, runner: RunnerT) -> LoadedModel[RunnerT]:
    """The runner with the tokenizer of `config.model_dir`. Raises ModelError if this cannot be used."""
    tokenizer = load_tokenizer(config.model_dir, runner.vocab_size)
    return LoadedModel(runner, tokenizer.encoder, tokenizer.vocabulary, tokenizer.trie, tokenizer.start_ids)
