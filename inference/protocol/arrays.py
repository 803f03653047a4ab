"""What the requests and answers of all models have in common: fields as arrays, the heartbeat, errors as text."""

import dataclasses
from collections.abc import Iterable, Mapping
from enum import EnumMeta
from itertools import chain
from typing import Any, TypeVar, cast, get_args, get_origin

import numpy as np
import numpy.typing as npt

from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    MidtokenError,
    OverloadedError,
    ServerError,
    quote,
)
from inference.protocol.completion import replace_surrogates

Array = npt.NDArray[Any]  # BYTES tensors are object arrays; FieldTypes names the dtype of each field
FieldTypes = dict[str, tuple[str, type]]  # name -> (Triton type, NumPy type)
_Request = TypeVar("_Request")

# A model's heartbeat: how long ago its worker thread last made progress. A normal request as a probe would wait for
# other requests, and a busy server would look dead. `model.py` answers a heartbeat request at once.
HEARTBEAT = "heartbeat"  # the input that requests it; required inputs of the model are sent too, empty
HEARTBEAT_ANSWER = "heartbeat_ms"  # the only output: milliseconds without progress, 0 while idle
HEARTBEAT_ANSWER_TYPES: FieldTypes = {HEARTBEAT_ANSWER: ("FP32", np.float32)}

# The input with the id of a request that this one cancels. It has no answer of its own: that request's answer ends. A
# request's id is that of its message, and random, so that no other client can cancel it.
CANCEL = "cancel"

COMMON_TYPES: FieldTypes = {HEARTBEAT: ("BOOL", np.bool_), CANCEL: ("BYTES", np.object_)}

# With a heartbeat, also the model's metrics.
METRICS, METRICS_ANSWER = "metrics", "metrics_text"
METRICS_TYPES: FieldTypes = {METRICS: ("BOOL", np.bool_)}
METRICS_ANSWER_TYPES: FieldTypes = {METRICS_ANSWER: ("BYTES", np.object_)}

# Kind of error -> the beginning of its text, the name of its code in Triton. A gRPC stream transmits only the text.
_ERRORS: dict[type[MidtokenError], tuple[str, str]] = {
    InvalidRequestError: ("invalid request: ", "INVALID_ARG"),
    OverloadedError: ("overloaded: ", "UNAVAILABLE"),
    InferenceServerUnreachableError: ("engine unreachable: ", "UNAVAILABLE"),
    MidtokenError: ("", "INTERNAL"),
}


def to_array(values: Iterable[Any], dtype: type) -> Array:
    """The values as an array of shape [num_values]; strings as UTF-8 bytes, with U+FFFD for a lone surrogate."""
    if dtype is np.object_:
        values = [value if isinstance(value, bytes) else replace_surrogates(str(value)).encode() for value in values]
    return np.array(list(values), dtype=dtype)


def to_text(name: str, item: bytes) -> str:
    """An item of a BYTES array as a str, with U+FFFD for a lone surrogate. Raises InvalidRequestError if not UTF-8."""
    try:
        return replace_surrogates(item.decode(errors="surrogatepass"))
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None


def fields_to_arrays(request: Any, types: FieldTypes) -> dict[str, Array]:
    """The array of the dataclass's first field, which is required, and of each that differs from its default."""
    arrays = {}
    for field in dataclasses.fields(request):
        value = getattr(request, field.name)
        if value != field.default:  # the first field has none
            items = chain.from_iterable(map(_list_texts, value)) if isinstance(value, tuple) else (value,)
            arrays[field.name] = to_array(items, types[field.name][1])
    return arrays


def fields_from_arrays(kind: type[_Request], arrays: Mapping[str, Array], required: str) -> _Request:
    """Builds the dataclass from the arrays. `required`: what the first field is, for the error if it is missing.

    Raises InvalidRequestError, which names the field and says what it should be.
    """
    fields = {field.name: field.type for field in dataclasses.fields(cast(Any, kind))}
    check_known(arrays, fields)
    if (first := next(iter(fields))) not in arrays:
        raise InvalidRequestError(f"{first} is missing: {required}")
    return kind(**{name: _read_field(name, array, fields[name]) for name, array in arrays.items()})


def asks_for(name: str, arrays: Mapping[str, Array]) -> bool:
    """True for a request of a heartbeat, or of metrics."""
    return name in arrays and bool(np.all(arrays[name]))


def heartbeat_to_arrays(without_progress_ms: float) -> dict[str, Array]:
    """The arrays of the answer to a heartbeat request."""
    return {HEARTBEAT_ANSWER: np.array([without_progress_ms], np.float32)}


def heartbeat_from_arrays(arrays: Mapping[str, Array]) -> float:
    """Milliseconds without progress. Raises ServerError if the arrays are not an answer to a heartbeat request."""
    if HEARTBEAT_ANSWER not in arrays:
        raise ServerError("the server answered a request for its heartbeat with something else")
    return float(arrays[HEARTBEAT_ANSWER].reshape(-1)[0])


def metrics_from_arrays(arrays: Mapping[str, Array]) -> str:
    """The metrics in the answer to a heartbeat request; none from a model that has none."""
    return "".join(to_text(METRICS_ANSWER, item) for item in arrays.get(METRICS_ANSWER, np.array([])))


def error_to_response(error: MidtokenError) -> tuple[str, str]:
    """The text of the response, and the name of its code in Triton's `TritonError`."""
    beginning, code = next(form for kind, form in _ERRORS.items() if isinstance(error, kind))
    return f"{beginning}{error}", code


def error_from_text(text: str) -> MidtokenError:
    """The error for a text of `error_to_response`. Any other text, such as a message of Triton, gives a ServerError."""
    for kind, (beginning, _) in _ERRORS.items():
        if beginning and text.startswith(beginning):
            return kind(text.removeprefix(beginning))
    return ServerError(text)


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Raises InvalidRequestError for a name that is not known."""
    for name in names:
        if name not in known:
            raise InvalidRequestError(f"unknown field {quote(name)}; known are {', '.join(known)}")


def _read_field(name: str, array: Array, kind: Any) -> Any:
    items = array.reshape(-1)
    if get_origin(kind) is tuple:  # of strings, or of dataclasses whose fields are strings
        return _read_items(name, [to_text(name, item) for item in items.tolist()], get_args(kind)[0])
    if len(items) != 1:
        raise InvalidRequestError(f"{name} takes one value, not {len(items)}")
    item = items.item()
    if kind is str:
        return to_text(name, item)
    return _to_member(name, to_text(name, item), kind) if isinstance(kind, EnumMeta) else item


def _list_texts(item: Any) -> Iterable[str]:
    return (item,) if isinstance(item, str) else dataclasses.astuple(item)


def _read_items(name: str, texts: list[str], kind: Any) -> tuple[Any, ...]:
    if kind is str:
        return tuple(texts)
    names = [field.name for field in dataclasses.fields(kind)]
    if len(texts) % len(names):
        raise InvalidRequestError(f"{name} takes {' and '.join(names)} of each item, not {len(texts)} strings")
    return tuple(kind(*texts[start : start + len(names)]) for start in range(0, len(texts), len(names)))


def _to_member(name: str, value: str, kind: EnumMeta) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise InvalidRequestError(f"{name} must be one of {', '.join(map(str, kind))}, not {quote(value)}") from None
