"""Requests and answers as named arrays, and back: what all models have in common, and those of completions.

The arrays are sent over gRPC as tensors, and over HTTP as JSON fields of the same names. The client
(`inference.client.client`) and the server's models (`inference.hosting`) both use these conversions.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from enum import EnumMeta
from itertools import chain
from typing import Any, cast, get_args, get_origin

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
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Description,
    Explanation,
    FinishReason,
    replace_surrogates,
)

Array = npt.NDArray[Any]  # BYTES tensors are object arrays; FieldTypes names the dtype of each field
FieldTypes = dict[str, tuple[str, type]]  # name -> (Triton type, NumPy type)

# The input that asks a model for its `Description`, beside its required inputs, which are empty then. A normal request
# as a probe would wait for other requests, and a busy server would look dead. This one is answered at once.
HEARTBEAT = "heartbeat"

# The input with the id of a request that this one cancels. It has no answer of its own: that request's answer ends. A
# request's id is that of its message, and random, so that no other client can cancel it.
CANCEL = "cancel"

COMMON_TYPES: FieldTypes = {HEARTBEAT: ("BOOL", np.bool_), CANCEL: ("BYTES", np.object_)}

# One array for each field of a `Description`. An empty one is left out. The character-level model has the first alone.
DESCRIPTION_TYPES: FieldTypes = {
    "heartbeat_ms": ("FP32", np.float32),
    **dict.fromkeys(("languages", "runs_as", "problem", "inputs", "repository_format"), ("BYTES", np.object_)),
    "context_tokens": ("BYTES", np.object_),
    "metrics": ("BYTES", np.object_),
}

# Input arrays: name -> (Triton type, NumPy type). Shape [1], `stop` [num_stop], `related` [2 * num_files]: the path and
# the text of each file. Only `prefix` is required.
REQUEST_TYPES: FieldTypes = {
    "prefix": ("BYTES", np.object_),
    "suffix": ("BYTES", np.object_),
    "max_tokens": ("INT32", np.int32),
    "healing": ("BYTES", np.object_),
    "stop": ("BYTES", np.object_),
    "extent": ("BYTES", np.object_),
    "temperature": ("FP32", np.float32),
    "top_p": ("FP32", np.float32),
    "seed": ("INT64", np.int64),
    "num_candidates": ("INT32", np.int32),
    "deadline_ms": ("INT32", np.int32),
    "explain": ("BOOL", np.bool_),
    "chunks": ("BYTES", np.object_),
    "tenant": ("BYTES", np.object_),
    "document": ("BYTES", np.object_),
    "priority": ("BYTES", np.object_),
    "min_probability": ("FP32", np.float32),
    "related": ("BYTES", np.object_),
    "path": ("BYTES", np.object_),
    "near_first": ("BOOL", np.bool_),
}

# Output arrays, each of shape [1]; `text_ends` and `log_probs` [num_ends], absent if there are none. `stats` and
# `explanation` are in the last chunk only.
CHUNK_TYPES: FieldTypes = {
    "text": ("BYTES", np.object_),
    "candidate": ("INT32", np.int32),
    "text_ends": ("INT32", np.int32),
    "log_probs": ("FP32", np.float32),
    "healed_bytes": ("INT32", np.int32),
    "finish_reason": ("BYTES", np.object_),  # empty until the candidate ends
    "stats": ("BYTES", np.object_),  # CompletionStats as JSON; Triton takes 0.05 ms for each array
    "explanation": ("BYTES", np.object_),  # Explanation as JSON
}

PROBABILITIES = ("text_ends", "log_probs")


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


def request_to_arrays(request: Any, types: FieldTypes = REQUEST_TYPES) -> dict[str, Array]:
    """The array of the request's first field, which is required, and of each that differs from its default."""
    arrays = {}
    for field in dataclasses.fields(request):
        value = getattr(request, field.name)
        if value != field.default:  # the first field has none
            items = value if isinstance(value, tuple) else (value,)
            if items and dataclasses.is_dataclass(items[0]):
                items = tuple(chain.from_iterable(map(dataclasses.astuple, items)))
            arrays[field.name] = to_array(items, types[field.name][1])
    return arrays


def request_from_arrays(
    arrays: Mapping[str, Array], kind: Any = CompletionRequest, required: str = "the text before the cursor"
) -> Any:
    """The request in the arrays, of this dataclass. `required`: what its first field is, for the error without it.

    Raises InvalidRequestError, which names the field and says what it should be.
    """
    fields = {field.name: field.type for field in dataclasses.fields(kind)}
    check_known(arrays, fields)
    if (first := next(iter(fields))) not in arrays:
        raise InvalidRequestError(f"{first} is missing: {required}")
    return kind(**{name: _read_field(name, array, fields[name]) for name, array in arrays.items()})


def description_to_arrays(description: Description) -> dict[str, Array]:
    """The arrays of the description's fields."""
    values = {name: getattr(description, name) for name in DESCRIPTION_TYPES}
    return {
        name: to_array(value if isinstance(value, tuple) else (value,), DESCRIPTION_TYPES[name][1])
        for name, value in values.items()
        if value or name == "heartbeat_ms"
    }


def description_from_arrays(arrays: Mapping[str, Array]) -> Description:
    """The description in the arrays. A server that is older than a field does not report it.

    Raises ServerError if the arrays are no description.
    """
    if "heartbeat_ms" not in arrays:
        raise ServerError("the server answered a request for its heartbeat with something else")

    def read(name: str) -> tuple[str, ...]:
        return tuple(to_text(name, item) for item in arrays[name].reshape(-1)) if name in arrays else ()

    return Description(
        languages=read("languages"),
        inputs=read("inputs"),
        context_tokens=next((int(text) for text in read("context_tokens") if text.isdecimal()), None),
        heartbeat_ms=float(arrays["heartbeat_ms"].reshape(-1)[0]),
        **{name: "".join(read(name)) for name in ("runs_as", "problem", "repository_format", "metrics")},
    )


def chunk_to_arrays(chunk: CompletionChunk) -> dict[str, Array]:
    """The arrays of the chunk's fields."""
    parts = {"stats": chunk.stats, "explanation": chunk.explanation}
    values: dict[str, Any] = {
        "text": chunk.text,
        "candidate": chunk.candidate,
        "healed_bytes": chunk.healed_bytes,
        "finish_reason": chunk.finish_reason or "",
        **{name: json.dumps(dataclasses.asdict(part)) for name, part in parts.items() if part is not None},
    }
    arrays = {name: to_array((value,), CHUNK_TYPES[name][1]) for name, value in values.items()}
    if chunk.text_ends:
        arrays |= {name: to_array(getattr(chunk, name), CHUNK_TYPES[name][1]) for name in PROBABILITIES}
    return arrays


def chunk_from_arrays(arrays: Mapping[str, Array]) -> CompletionChunk:
    """The chunk in the arrays of `chunk_to_arrays`. Raises ServerError if its probabilities are of another text."""
    texts = {name: to_text(name, array.reshape(-1)[0]) for name, array in arrays.items() if array.dtype == np.object_}
    reason = texts["finish_reason"]
    ends, log_probs = (arrays[name].reshape(-1).tolist() if name in arrays else [] for name in PROBABILITIES)
    if len(ends) != len(log_probs) or ends != sorted(set(ends) & {*range(1, len(texts["text"]) + 1)}):
        raise ServerError("the server's probabilities (text_ends, log_probs) do not belong to its text")
    return CompletionChunk(
        text=texts["text"],
        candidate=arrays["candidate"].item(),
        healed_bytes=arrays["healed_bytes"].item(),
        text_ends=tuple(ends),
        log_probs=tuple(log_probs),
        finish_reason=FinishReason(reason) if reason else None,
        stats=read_json(json.loads(texts["stats"]), CompletionStats) if "stats" in texts else None,
        explanation=read_json(json.loads(texts["explanation"]), Explanation) if "explanation" in texts else None,
    )


def error_from_text(text: str) -> MidtokenError:
    """The error for a `stream_text`. Any other text, such as a message of Triton, gives a ServerError."""
    for kind in (InvalidRequestError, OverloadedError, InferenceServerUnreachableError):
        if text.startswith(kind.prefix):
            return kind(text.removeprefix(kind.prefix))
    return ServerError(text)


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Raises InvalidRequestError for a name that is not known."""
    for name in names:
        if name not in known:
            raise InvalidRequestError(f"unknown field {quote(name)}; known are {', '.join(known)}")


def _read_field(name: str, array: Array, kind: Any) -> Any:
    items = array.reshape(-1).tolist()
    if get_origin(kind) is tuple:  # of strings, or of dataclasses whose fields are strings
        return _read_items(name, [to_text(name, item) for item in items], get_args(kind)[0])
    if len(items) != 1:
        raise InvalidRequestError(f"{name} takes one value, not {len(items)}")
    value = to_text(name, items[0]) if kind is str or isinstance(kind, EnumMeta) else items[0]
    if not isinstance(kind, EnumMeta):
        return value
    members = {str(member): member for member in cast(Any, kind)}
    if value not in members:
        raise InvalidRequestError(f"{name} must be one of {', '.join(members)}, not {quote(value)}")
    return members[value]


def _read_items(name: str, texts: list[str], kind: Any) -> tuple[Any, ...]:
    if kind is str:
        return tuple(texts)
    names = [field.name for field in dataclasses.fields(kind)]
    if len(texts) % len(names):
        raise InvalidRequestError(f"{name} takes {' and '.join(names)} of each item, not {len(texts)} strings")
    return tuple(kind(*texts[start : start + len(names)]) for start in range(0, len(texts), len(names)))


def read_json(value: Any, kind: Any) -> Any:
    """The dataclass, or the tuple of some, in parsed JSON. Leaves out what a newer server reports, too."""
    if dataclasses.is_dataclass(kind):
        kinds = {field.name: field.type for field in dataclasses.fields(kind)}
        return cast(Any, kind)(**{name: read_json(value[name], kinds[name]) for name in value.keys() & kinds.keys()})
    return tuple(read_json(item, get_args(kind)[0]) for item in value) if get_origin(kind) is tuple else value
