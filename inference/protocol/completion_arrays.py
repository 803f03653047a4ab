"""Completion requests and chunks as named arrays, and back.

The arrays are sent over gRPC as tensors, and over HTTP as JSON fields of the same names. The client
(`inference.client.client`) and the server's model both use these conversions.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.errors import ServerError
from inference.protocol.arrays import Array, FieldTypes, fields_from_arrays, fields_to_arrays, to_array, to_text
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    ExplainedFile,
    ExplainedNode,
    Explanation,
    FinishReason,
)

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


@dataclass(frozen=True, slots=True)
class Description:
    """What a server tells of itself, beside the answer to a heartbeat."""

    languages: tuple[str, ...] = ()  # those that the model knows, by their identifiers in LSP; empty: any
    runs_as: str = ""  # the type of numbers, the threads, and why
    problem: str = ""  # why no request would be answered now; empty: one would
    inputs: tuple[str, ...] = tuple(REQUEST_TYPES)  # the fields of requests that it knows
    repository_format: str = ""  # in which the model reads `related`; empty: as plain text, which it was not trained on
    context_tokens: int | None = None  # of a prompt, at most

    @property
    def reads_files(self) -> bool:
        """True if the model was trained on several files in one text."""
        return self.repository_format != ""


# One array for each field. An empty one is left out.
DESCRIPTION_TYPES: FieldTypes = {each.name: ("BYTES", np.object_) for each in dataclasses.fields(Description)}


def request_to_arrays(request: CompletionRequest) -> dict[str, Array]:
    """The array of `prefix`, and of each field that differs from its default."""
    return fields_to_arrays(request, REQUEST_TYPES)


def request_from_arrays(arrays: Mapping[str, Array]) -> CompletionRequest:
    """The request in the arrays. Raises InvalidRequestError, which names the field and says what it should be."""
    return fields_from_arrays(CompletionRequest, arrays, "the text before the cursor")


def chunk_to_arrays(chunk: CompletionChunk) -> dict[str, Array]:
    """The arrays of the chunk's fields."""
    values: dict[str, Any] = {
        "text": chunk.text,
        "candidate": chunk.candidate,
        "healed_bytes": chunk.healed_bytes,
        "finish_reason": chunk.finish_reason or "",
    }
    for name, part in (("stats", chunk.stats), ("explanation", chunk.explanation)):
        if part is not None:
            values[name] = json.dumps(dataclasses.asdict(part))
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
        stats=_read_stats(json.loads(texts["stats"])) if "stats" in texts else None,
        explanation=_read_explanation(json.loads(texts["explanation"])) if "explanation" in texts else None,
    )


def description_to_arrays(description: Description) -> dict[str, Array]:
    """The arrays of the description's fields."""
    values = dataclasses.asdict(description).items()
    texts = {name: value if isinstance(value, tuple) else (value or "",) for name, value in values}
    return {name: to_array(value, np.object_) for name, value in texts.items() if any(value)}


def description_from_arrays(arrays: Mapping[str, Array]) -> Description:
    """The description in the arrays. A server that is older than a field does not tell it."""

    def read(name: str) -> tuple[str, ...]:
        return tuple(to_text(name, item) for item in arrays[name].reshape(-1)) if name in arrays else ()

    return Description(
        read("languages"),
        "".join(read("runs_as")),
        "".join(read("problem")),
        read("inputs"),
        "".join(read("repository_format")),
        next((int(text) for text in read("context_tokens") if text.isdecimal()), None),
    )


def _read_stats(values: dict[str, Any]) -> CompletionStats:
    """Leaves out what a newer server tells, too."""
    known = {each.name for each in dataclasses.fields(CompletionStats)}
    return CompletionStats(**{name: value for name, value in values.items() if name in known})


def _read_explanation(fields: dict[str, Any]) -> Explanation:
    fields["nodes"] = [ExplainedNode(**node) for node in fields["nodes"]]
    fields["related"] = [ExplainedFile(**file) for file in fields.get("related", ())]
    fields |= {name: tuple(item) for name, item in fields.items() if isinstance(item, list)}
    return Explanation(**fields)
