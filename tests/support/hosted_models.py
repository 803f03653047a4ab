"""The models of the model repository, and the answers that they send."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from inference.client.channel import CHARACTERS, COMPLETION
from inference.config import EngineConfig
from inference.errors import MidtokenError
from inference.hosting.models import CharacterModel, CompletionModel
from inference.protocol.arrays import Array
from midtoken.installed import find_model_repository

_MODELS: Mapping[str, Any] = {COMPLETION: CompletionModel, CHARACTERS: CharacterModel}


def read_configuration(name: str) -> str:
    """Returns the text of a model's config.pbtxt."""
    return (find_model_repository() / name / "config.pbtxt").read_text()


def load_hosted_model(name: str, load: Callable[..., Any], model_dir: Path = Path("m")) -> Any:
    """Returns a loaded model, which gets its engine or its service from `load`."""
    model = _MODELS[name](load)
    model.load(EngineConfig(model_dir))
    return model


class RecordedReply:
    """The answer to one request."""

    def __init__(self) -> None:
        self.parts: list[Mapping[str, Array]] = []
        self.error: MidtokenError | None = None
        self.num_ends = 0
        self.cancelled = False

    def send(self, arrays: Mapping[str, Array], is_last: bool) -> None:
        self.parts.append(arrays)
        self.num_ends += is_last

    def fail(self, error: MidtokenError) -> None:
        self.error = error
        self.num_ends += 1

    def is_closed(self) -> bool:
        return self.cancelled
