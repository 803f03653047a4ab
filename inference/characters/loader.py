"""From a model folder to a character-level model."""

from inference.characters.model import CharacterModel
from inference.characters.model_reader import ModelReader
from inference.config import EngineConfig
from inference.errors import ModelError
from inference.model.loader import load_model


def load_character_model(config: EngineConfig) -> CharacterModel:
    """The character-level model of the model in `config.model_dir`. Raises ModelError where it cannot be used."""
    loaded = load_model(config)
    end_ids = sorted(loaded.vocabulary.end_ids)
    if not end_ids:
        raise ModelError(f"{config.model_dir} names no token that ends a text")

    def new_reader() -> ModelReader:
        return ModelReader(loaded.runner, loaded.trie, end_ids, config.max_context_tokens, config.cache_tokens)

    return CharacterModel(loaded.encoder, loaded.trie, loaded.start_ids, new_reader)
