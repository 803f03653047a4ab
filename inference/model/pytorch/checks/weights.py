"""Compares the weights in a model folder with those that the model's code asks for, and says why none can be read."""

import logging
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from inference.errors import ModelError

_log = logging.getLogger(__name__)

_NUM_NAMED = 3  # weights in a message
_OTHER_WEIGHTS = ("*.gguf", "*.pth", "*.pt", "*.onnx", "*.npz", "*.h5", "*.msgpack")
_POINTER = b"version https://git-lfs"
_LAYER = re.compile(r".*?\.\d+(?=\.)")


def check_weights(  # `model`: of transformers, which has no types
    model: Any, missing: Collection[str], unused: Collection[str]
) -> None:
    """Raises ModelError if weights are missing, or if a layer has more of them than its code uses.

    Weights for parts that the model does not have, as the vision tower of a text model, are named in a warning.
    """
    if missing:  # transformers has filled them with random numbers
        family = model.config.model_type
        raise ModelError(
            f"its files lack the weights {_name(sorted(missing))}, which models of the family {family!r} have; "
            "download the model again"
        )
    modules = dict(model.named_modules())
    strange = sorted(name for name in unused if _is_of_layer(name, modules))
    if strange:
        raise ModelError(
            f"its files have the weights {_name(strange)}, which the code of its family in transformers does not use, "
            "so it is another model than its config.json says"
        )
    if unused:
        _log.warning("weights in the model folder that the model does not use: %s", _name(sorted(unused)))


def explain_unread(folder: Path) -> str:
    """Why transformers cannot read the weights in `folder`."""
    files = sorted(path for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern))
    if not files:
        others = sorted(path.name for pattern in _OTHER_WEIGHTS for path in folder.glob(pattern))
        beside = f", and {others[0]} is in a format that is not supported" if others else ""
        return f"it has no weights (model.safetensors){beside}"
    for path in files:
        if _is_pointer(path):
            return f"{path.name} is a Git LFS pointer in place of the weights; run 'git lfs pull' in the folder"
    return "its weights are missing or damaged, or do not fit its config.json"


def _is_pointer(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_POINTER)) == _POINTER
    except OSError:
        return False


def _is_of_layer(name: str, modules: dict[str, torch.nn.Module]) -> bool:
    """True for a weight of a layer that exists. False for masks and frequencies, which old files hold as well."""
    layer = _LAYER.match(name)
    if layer is None or layer[0] not in modules:
        return False
    parent, _, last = name.rpartition(".")
    has_weights = parent in modules and next(modules[parent].parameters(recurse=False), None) is not None
    return last == "weight" or has_weights


def _name(weights: Sequence[str]) -> str:
    more = f" and {len(weights) - _NUM_NAMED} more" if len(weights) > _NUM_NAMED else ""
    return ", ".join(weights[:_NUM_NAMED]) + more
