"""Loads a character-level model from a model folder."""

import dataclasses
from contextlib import nullcontext
from functools import partial

from inference.characters.model import CharacterModel
from inference.characters.model_reader import ModelReader
from inference.characters.token_string import PassWatch
from inference.config import AUTO_DTYPE, DEFAULT_CONTEXT_TOKENS, EngineConfig
from inference.errors import ModelError
from inference.model.loader import load_model


def load_character_model(config: EngineConfig, watch: PassWatch = nullcontext) -> CharacterModel:
    """The character-level model for `config.model_dir`. `watch` is entered for each forward pass, and more often.

    Raises ModelError if the model cannot be used.
    """
    if config.dtype == AUTO_DTYPE:  # what suits completions may not be exact enough for probabilities
        config = dataclasses.replace(config, dtype="float32")
    max_context_tokens = config.max_context_tokens or DEFAULT_CONTEXT_TOKENS  # for the same reason
    config = dataclasses.replace(config, max_context_tokens=max_context_tokens)
    loaded = load_model(config)
    end_ids = sorted(loaded.tokenizer.vocabulary.end_ids)
    if not end_ids:
        raise ModelError(f"{config.model_dir} names no token for the end of a text")
    tokenizer = loaded.tokenizer
    new_reader = partial(ModelReader, loaded.model, tokenizer.trie, end_ids, max_context_tokens, watch)
    return CharacterModel(tokenizer.encoder, tokenizer.trie, tokenizer.start_ids, new_reader, watch)
