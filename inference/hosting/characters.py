"""The model `characters` of the model repository: `inference.protocol.characters` before the character-level model.

Its worker's thread loads the model at the first request, and sends the answers.
"""

import os
from collections.abc import Callable

from inference.characters.token_string import PassWatch
from inference.characters.worker import Answerer, CharacterWorker
from inference.config import EngineConfig
from inference.errors import ModelError
from inference.hosting.adapter import Adapter
from inference.protocol import characters

_NICENESS = 10  # the processor is for completions first


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
            "characters",
            characters.REQUEST_TYPES,
            characters.request_from_arrays,
            characters.answer_to_arrays,
            lambda config: CharacterWorker(lambda watch: load(config, watch)),
        )

    def initialize(self, args: dict[str, str]) -> None:
        """As every model, but with less of the processor: this process has no other model."""
        os.nice(_NICENESS)
        super().initialize(args)
