"""From a model folder to what an engine or a character-level model is made of."""

from dataclasses import dataclass

from inference.characters import CharacterModel
from inference.config import EngineConfig
from inference.errors import ModelError
from inference.runner import Runner, load_runner
from inference.text_encoder import TextEncoder, load_text_encoder
from inference.token_reader import ModelReader
from trie_cache.errors import TrieCacheError
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """One model, its tokenizer and its vocabulary."""

    runner: Runner
    encoder: TextEncoder
    vocabulary: Vocabulary
    trie: Trie
    start_ids: tuple[int, ...]  # what every text of this model begins with


def load_model(config: EngineConfig) -> LoadedModel:
    """The model in `config.model_dir`. Raises ModelError where it cannot be used."""
    runner = load_runner(config)
    encoder = load_text_encoder(config.model_dir)
    try:
        vocabulary = Vocabulary.from_folder(config.model_dir, runner.vocab_size)
    except TrieCacheError as error:
        raise ModelError(str(error)) from error
    start_ids = encoder.start_ids or tuple(sorted(vocabulary.end_ids))[:1]
    if not start_ids:
        raise ModelError(f"{config.model_dir} names no token that a text begins or ends with")
    return LoadedModel(runner, encoder, vocabulary, Trie.build(vocabulary), start_ids)


def load_character_model(config: EngineConfig) -> CharacterModel:
    """The character-level model of the model in `config.model_dir`. Raises ModelError where it cannot be used."""
    loaded = load_model(config)
    end_ids = sorted(loaded.vocabulary.end_ids)
    if not end_ids:
        raise ModelError(f"{config.model_dir} names no token that ends a text")

    def new_reader() -> ModelReader:
        return ModelReader(loaded.runner, loaded.trie, end_ids, config.max_context_tokens, config.cache_tokens)

    return CharacterModel(loaded.encoder, loaded.trie, loaded.start_ids, new_reader)
