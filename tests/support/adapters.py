"""The adapters of the model repository, loaded as the embedded server loads them, and the answers that they send."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from inference.config import EngineConfig
from inference.errors import MidtokenError
from inference.protocol.arrays import Array
from midtoken.installed import find_model_repository


def read_configuration(name: str) -> str:
    """Returns the text of a model's config.pbtxt."""
    return (find_model_repository() / name / "config.pbtxt").read_text()


def load_adapter(name: str, load: Callable[..., Any], model_dir: Path = Path("m")) -> Any:
    """Returns a loaded adapter, which gets its engine or its service from `load`."""
    path = find_model_repository() / name / "1" / "model.py"
    spec = importlib.util.spec_from_file_location(f"{name}_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel(load)
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
