"""The Triton model `characters`, which converts between tensors and `inference.protocol.characters`.

Its worker's thread sends the answers. `inference.protocol.adapter` has what both models share.
"""

import os
from collections.abc import Callable

import triton_python_backend_utils as pb_utils

import inference
from inference.characters.token_string import PassWatch
from inference.characters.worker import Answerer, CharacterWorker
from inference.config import EngineConfig
from inference.errors import ModelError
from inference.protocol import characters
from inference.protocol.adapter import Adapter


def _load(config: EngineConfig, watch: PassWatch) -> Answerer:
    if config.engine_url:
        raise ModelError("the character-level model needs the weights, and they are on another server (--engine)")
    from inference.characters.assembly import load_character_model
    from inference.characters.service import CharacterService  # here, because the loader loads the runners

    return CharacterService(load_character_model(config, watch), config.memory_mib * 2**20).answer


class TritonPythonModel(Adapter):
    """The character-level model."""

    def __init__(self, load: Callable[[EngineConfig, PassWatch], Answerer] = _load) -> None:
        super().__init__(
            pb_utils, characters.REQUEST_TYPES, characters.request_from_arrays, characters.answer_to_arrays
        )
        self._load = load

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the settings. Raises ModelError if one is missing or invalid."""
        pb_utils.Logger.log_info(f"characters: inference is {inference.__file__}")
        config = self.read_config(args, os.environ)
        self.engine = CharacterWorker(lambda watch: self._load(config, watch))
