"""The adapters of the model repository, loaded as Triton loads them."""

import importlib.util
import os
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from midtoken.installed import find_model_repository


def read_configuration(name: str) -> str:
    """Returns the text of a model's config.pbtxt."""
    return (find_model_repository() / name / "config.pbtxt").read_text()


def load_adapter(name: str, load: Callable[..., Any]) -> Any:
    """Returns an initialized adapter, which gets its engine or its service from `load`. Its model folder is `m`."""
    path = find_model_repository() / name / "1" / "model.py"
    spec = importlib.util.spec_from_file_location(f"{name}_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel(load)
    with patch.dict(os.environ, {"MIDTOKEN_MODEL_DIR": os.environ.get("MIDTOKEN_MODEL_DIR", "m")}):
        model.initialize({})
    return model
