"""One completion request and the chunks that answer it, as dataclasses and as named arrays.

The arrays are sent over gRPC as tensors, and over HTTP as JSON fields of the same names. The client
(`inference.serving.completion_client`) and the server's model both use the conversions of this module.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from inference.errors import InvalidRequestError
from inference.protocol.arrays import (
    Array,
    FieldTypes,
    check_known,
    check_range,
    to_array,
    to_member,
    to_single,
    to_text,
)

MAX_TEXT_BYTES = 8 * 1024 * 1024
MAX_NAME_BYTES = 1024
MAX_STOP_STRINGS = 16
MAX_NEW_TOKENS = 4096
MAX_CANDIDATES = 16


class Healing(StrEnum):
    """How the model is made to continue exactly the text before the cursor."""

    EXACT = "exact"  # the covering tree: exact, one forward pass
    GREEDY = "greedy"  # from the heal point on, one mask for each step
    SINGLE = "single"  # one token back; the next token must extend it
    NONE = "none"  # no healing: the canonical tokens of the text


class Extent(StrEnum):
    """How far a completion may go."""

    SINGLE_LINE = "single_line"  # to the end of the line
    BLOCK = "block"  # to the end of the indented block
    AUTO = "auto"  # a block if the cursor opens one, otherwise a line


class Chunks(StrEnum):
    """When text is sent. Text that a later token may still cut waits in both cases."""

    TOKENS = "tokens"  # after each step
    LINES = "lines"  # the first line once it is complete, and the rest at the end


class Priority(StrEnum):
    """Who waits for the answer."""

    INTERACTIVE = "interactive"  # a person
    PREFETCH = "prefetch"  # nobody yet: runs when no person waits


class FinishReason(StrEnum):
    """Why a candidate ended."""

    END = "end"  # the model chose its end token
    EXTENT = "extent"  # the requested line or block is complete
    SUFFIX = "suffix"  # the text after the cursor was reached; what repeated it is not part of the text
    STOP = "stop"  # a stop string was generated; it is not part of the text
    LOOP = "loop"  # the text began to repeat itself; the repetition is not part of it
    LENGTH = "length"  # max_tokens were generated
    DEADLINE = "deadline"
    SUPERSEDED = "superseded"  # a newer request for the same document came
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request to complete the text between `prefix` and `suffix`."""

    prefix: str
    suffix: str = ""
    max_tokens: int = 64
    healing: Healing = Healing.EXACT
    stop: tuple[str, ...] = ()
    extent: Extent = Extent.AUTO
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    num_candidates: int = 1
    deadline_ms: int | None = None
    explain: bool = False
    chunks: Chunks = Chunks.TOKENS
    tenant: str = ""  # whose request it is; what is remembered is never shared between tenants
    document: str = ""  # a newer request of the same tenant for the same document ends this one; empty: none does
    priority: Priority = Priority.INTERACTIVE

    def __post_init__(self) -> None:
        """Raises InvalidRequestError if a value is out of range."""
        _check_text("prefix", self.prefix)
        _check_text("suffix", self.suffix)
        check_range("max_tokens", self.max_tokens, 1, MAX_NEW_TOKENS)
        check_range("num_candidates", self.num_candidates, 1, MAX_CANDIDATES)
        check_range("temperature", self.temperature, 0.0, 10.0)
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidRequestError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.seed is not None:
            check_range("seed", self.seed, 0, 2**63 - 1)
        if self.deadline_ms is not None:
            check_range("deadline_ms", self.deadline_ms, 1, 3_600_000)
        if len(self.stop) > MAX_STOP_STRINGS or not all(self.stop):
            raise InvalidRequestError(f"stop takes up to {MAX_STOP_STRINGS} strings, none of them empty")
        for text in self.stop:
            _check_text("stop", text)
        for name in ("tenant", "document"):
            _check_text(name, getattr(self, name), MAX_NAME_BYTES)


@dataclass(frozen=True, slots=True)
class CompletionStats:
    """What a request cost. Sent with its last chunk."""

    queue_ms: float = 0.0
    first_chunk_ms: float = 0.0
    total_ms: float = 0.0
    num_tokens: int = 0
    num_forwards: int = 0
    num_healing_forwards: int = 0  # passes until all candidates have spelled the healed bytes; 1 with exact healing
    num_context_tokens: int = 0
    num_tree_nodes: int = 0
    num_read_tokens: int = 0  # context tokens that were forwarded, and not remembered
    num_first_rows: int = 0  # tokens forwarded until the first token was chosen
    num_drafted: int = 0  # guessed tokens that were forwarded
    num_accepted: int = 0  # those of them that were right
    num_hot_hits: int = 0
    num_hot_misses: int = 0
    prompt_ms: float = 0.0  # healing, and the layout of the prompt
    model_ms: float = 0.0  # forward passes; those that other requests shared count in full
    choice_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """A node of the covering tree and its crossing. In the strings, bytes that are not UTF-8 are written as \\xNN."""

    parent: int | None  # index into Explanation.nodes; None for the root, the end of the kept tokens
    token: str  # the token at this node; empty for the root
    num_covered_bytes: int  # how many healed bytes the path to this node spells
    log_mass: float | None  # log P(path) + log of the mass of the tokens that may follow; None: no crossing here
    best_token: str | None  # the most likely of those tokens
    best_log_prob: float | None  # log P(path + best_token)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What healing did at the cursor."""

    kept_tail: tuple[str, ...]  # the last kept tokens, as text
    healed_bytes: str
    nodes: tuple[ExplainedNode, ...]
    chosen_tokens: tuple[str, ...]  # the chosen path, and the token that goes beyond the healed bytes
    unhealed_tokens: tuple[str, ...]  # the canonical tokens of the healed bytes, without healing


@dataclass(frozen=True, slots=True)
class CompletionChunk:
    """A piece of one candidate. The concatenated texts of a candidate begin exactly at the cursor."""

    text: str
    candidate: int = 0
    healed_bytes: int = 0  # how many bytes before the cursor were generated again
    finish_reason: FinishReason | None = None  # in the candidate's last chunk only
    stats: CompletionStats | None = None  # in the request's last chunk only
    explanation: Explanation | None = None  # in the request's last chunk, if it was requested

    @property
    def is_last(self) -> bool:
        """True for the last chunk of the request."""
        return self.stats is not None


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


def _check_text(name: str, text: str, max_bytes: int = MAX_TEXT_BYTES) -> None:
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{name} holds a lone surrogate at character {error.start}") from None
    if num_bytes > max_bytes:
        raise InvalidRequestError(f"{name} has {num_bytes} bytes; at most {max_bytes} are taken")
