"""Completion requests and chunks as named arrays, and back.

The arrays are sent over gRPC as tensors, and over HTTP as JSON fields of the same names. The client
(`inference.serving.completion_client`) and the server's model both use these conversions.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from inference.errors import InvalidRequestError
from inference.protocol.arrays import Array, FieldTypes, check_known, to_array, to_member, to_single, to_text
from inference.protocol.completion import (
    Chunks,
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    ExplainedNode,
    Explanation,
    Extent,
    FinishReason,
    Healing,
    Priority,
)

# Input arrays: name -> (Triton type, NumPy type). Shape [1], `stop` [num_stop]. Only `prefix` is required.
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
}

# Output arrays, each of shape [1]. `stats` and `explanation` are in the last chunk only.
CHUNK_TYPES: FieldTypes = {
    "text": ("BYTES", np.object_),
    "candidate": ("INT32", np.int32),
    "healed_bytes": ("INT32", np.int32),
    "finish_reason": ("BYTES", np.object_),  # empty until the candidate ends
    "stats": ("BYTES", np.object_),  # CompletionStats as JSON; Triton takes 0.05 ms for each array
    "explanation": ("BYTES", np.object_),  # Explanation as JSON
}


def request_to_arrays(request: CompletionRequest) -> dict[str, Array]:
    """The array of `prefix`, and of each field that differs from its default."""
    arrays = {}
    for field in dataclasses.fields(CompletionRequest):
        value = getattr(request, field.name)
        if field.name == "prefix" or value != field.default:
            values = value if field.name == "stop" else (value,)
            arrays[field.name] = to_array(values, REQUEST_TYPES[field.name][1])
    return arrays


def request_from_arrays(arrays: Mapping[str, Array]) -> CompletionRequest:
    """The request in the arrays. Raises InvalidRequestError, which names the field and says what it should be."""
    check_known(arrays, REQUEST_TYPES)
    if "prefix" not in arrays:
        raise InvalidRequestError("prefix is missing: the text before the cursor")
    values: dict[str, Any] = {}
    for name, array in arrays.items():
        if name == "stop":
            values[name] = tuple(to_text(name, item) for item in array.reshape(-1).tolist())
            continue
        item = to_single(name, array)
        values[name] = to_text(name, item) if REQUEST_TYPES[name][0] == "BYTES" else item
    if "healing" in values:
        values["healing"] = to_member("healing", values["healing"], Healing)
    if "extent" in values:
        values["extent"] = to_member("extent", values["extent"], Extent)
    if "chunks" in values:
        values["chunks"] = to_member("chunks", values["chunks"], Chunks)
    if "priority" in values:
        values["priority"] = to_member("priority", values["priority"], Priority)
    return CompletionRequest(**values)


def chunk_to_arrays(chunk: CompletionChunk) -> dict[str, Array]:
    """The arrays of the chunk's fields."""
    values: dict[str, Any] = {
        "text": chunk.text,
        "candidate": chunk.candidate,
        "healed_bytes": chunk.healed_bytes,
        "finish_reason": chunk.finish_reason or "",
    }
    if chunk.stats is not None:
        values["stats"] = json.dumps(dataclasses.asdict(chunk.stats))
    if chunk.explanation is not None:
        values["explanation"] = json.dumps(dataclasses.asdict(chunk.explanation))
    return {name: to_array((value,), CHUNK_TYPES[name][1]) for name, value in values.items()}


def chunk_from_arrays(arrays: Mapping[str, Array]) -> CompletionChunk:
    """The chunk in the arrays of `chunk_to_arrays`."""
    values = {name: array.reshape(-1)[0] for name, array in arrays.items()}
    reason = to_text("finish_reason", values["finish_reason"])
    stats = None
    if "stats" in values:
        stats = CompletionStats(**json.loads(to_text("stats", values["stats"])))
    explanation = None
    if "explanation" in values:
        fields: dict[str, Any] = json.loads(to_text("explanation", values["explanation"]))
        fields["nodes"] = [ExplainedNode(**node) for node in fields["nodes"]]
        for name in ("kept_tail", "nodes", "chosen_tokens", "unhealed_tokens"):
            fields[name] = tuple(fields[name])
        explanation = Explanation(**fields)
    return CompletionChunk(
        text=to_text("text", values["text"]),
        candidate=int(values["candidate"]),
        healed_bytes=int(values["healed_bytes"]),
        finish_reason=FinishReason(reason) if reason else None,
        stats=stats,
        explanation=explanation,
    )
