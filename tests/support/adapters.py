"""The adapters of the model repository, loaded as Triton loads them, with the settings of their config.pbtxt."""

import importlib.util
import json
import re
from collections.abc import Callable
from typing import Any

from midtoken.installed import find_model_repository


def read_configuration(name: str) -> str:
    """Returns the text of a model's config.pbtxt."""
    return (find_model_repository() / name / "config.pbtxt").read_text()


def find_parameters(name: str) -> dict[str, str]:
    """Returns the settings in a model's config.pbtxt."""
    row = r'parameters \{ key: "(\w+)", value \{ string_value: "(.*)" \} \}'
    return dict(re.findall(row, read_configuration(name)))


def build_arguments(name: str) -> dict[str, str]:
    """Returns what Triton passes to `initialize`. The model folder is `m`."""
    parameters = {key: {"string_value": value} for key, value in (find_parameters(name) | {"model_dir": "m"}).items()}
    return {"model_config": json.dumps({"parameters": parameters})}


def load_adapter(name: str, load: Callable[..., Any]) -> Any:
    """Returns an initialized adapter, which gets its engine or its service from `load`."""
    path = find_model_repository() / name / "1" / "model.py"
    spec = importlib.util.spec_from_file_location(f"{name}_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel(load)
    model.initialize(build_arguments(name))
    return model
