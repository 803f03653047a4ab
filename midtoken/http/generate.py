"""Triton's generate extension: a request is a JSON object, and so is each response."""

import json
from collections.abc import Callable, Mapping
from typing import Any  # JSON has no types

import numpy as np

from inference.client.channel import CHARACTERS, COMPLETION
from inference.errors import InvalidRequestError
from inference.protocol import characters
from inference.protocol.arrays import (
    PROBABILITIES,
    REQUEST_TYPES,
    Array,
    FieldTypes,
    check_known,
    chunk_to_arrays,
    request_from_arrays,
    to_array,
)
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.completion import CompletionChunk, CompletionRequest

PATH = "/v2/models/{model}{version:(/versions/1)?}/{call:generate|generate_stream}"
_READERS: Mapping[str, tuple[FieldTypes, Callable[[Mapping[str, Array]], CompletionRequest | CharacterRequest]]] = {
    COMPLETION: (REQUEST_TYPES, request_from_arrays),
    CHARACTERS: (characters.REQUEST_TYPES, characters.request_from_arrays),
}
# Fields that may have any number of values. In a response, these are a list also if there is one.
_LISTS = {"stop", "related", *PROBABILITIES, "probabilities", "surprisals", "generated_bytes"}
_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {  # by NumPy's kind of type
    "O": ((str,), "a string"),
    "b": ((bool,), "true or false"),
    "i": ((int,), "a whole number"),
    "f": ((int, float), "a number"),
}


def read_request(model: str, fields: object) -> CompletionRequest | CharacterRequest:
    """Returns what the JSON of a body asks of a model. Raises InvalidRequestError."""
    if model not in _READERS:
        raise InvalidRequestError(f"there is no model {model}; there are {' and '.join(_READERS)}")
    types, read = _READERS[model]
    if not isinstance(fields, dict):
        raise InvalidRequestError("the body must be a JSON object")
    check_known(fields, types)
    return read({name: _read_field(name, value, types[name][1]) for name, value in fields.items()})


def write_answer(model: str, answer: CompletionChunk | CharacterAnswer) -> str:
    """Returns one response."""
    arrays = chunk_to_arrays(answer) if isinstance(answer, CompletionChunk) else characters.answer_to_arrays(answer)
    fields: dict[str, Any] = {"model_name": model, "model_version": "1"}
    for name, array in arrays.items():
        items = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
        fields[name] = items if name in _LISTS else items[0]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _read_field(name: str, value: Any, dtype: type) -> Array:
    items = value if isinstance(value, list) else [value]
    if len(items) != 1 and name not in _LISTS:
        raise InvalidRequestError(f"{name} takes one value, not {len(items)}")
    kind = np.dtype(dtype).kind
    kinds, described = _KINDS[kind]
    if any(type(item) not in kinds for item in items):
        raise InvalidRequestError(f"{name} must be {described}")
    if kind in "if":
        limits: Any = np.iinfo(dtype) if kind == "i" else np.finfo(dtype)
        # Python compares any numbers; NumPy 2 converts `item` to its own type first, and fails if it does not fit.
        lowest, highest = dtype(limits.min).item(), dtype(limits.max).item()
        if not all(lowest <= item <= highest for item in items):
            raise InvalidRequestError(f"{name} is out of the range of {limits.dtype}")
    return to_array(items, dtype)
