"""A request to the character-level model and its answer, as dataclasses and as named arrays.

Texts are bytes and may end inside a UTF-8 character. The arrays are sent like those of `inference.protocol.completion`.
JSON has no infinity. So the logarithm of a probability of zero is minus infinity in the dataclasses, but the smallest
float64 in the arrays.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np

from inference.errors import InvalidRequestError, check_ranges, refuse
from inference.protocol import arrays
from inference.protocol.arrays import Array, FieldTypes, read_json, to_array, to_text

END = 256  # the index of the end of the text in a distribution, after the 256 bytes
MAX_TEXT_BYTES = 16 * 1024  # requests are answered one at a time, and each byte may take a forward pass
MAX_ENUMERATED_BYTES = 16  # takes seconds; the number of tokenizations almost doubles with each byte
MAX_CONTEXT_BYTES = 2 * 1024 * 1024
MAX_WIDTH = 1024
MAX_MEMBERS = 64
MAX_NEW = 4096  # bytes
MAX_DEADLINE_MS = 3_600_000
MAX_NAME_CHARS = 1024

_RANGES = {
    "width": (1, MAX_WIDTH),
    "threshold": (0, 1),
    "num_members": (0, MAX_MEMBERS),
    "max_bytes": (1, MAX_NEW),
    "seed": (0, 2**63 - 1),
    "deadline_ms": (1, MAX_DEADLINE_MS),
}
_LEAST = float(np.finfo(np.float64).min)


class Ask(StrEnum):
    """The result that is requested for the text, given the context."""

    NEXT_BYTE = "next_byte"  # the distribution of the byte that follows the text
    SURPRISAL = "surprisal"  # of each byte of the text, in bits
    PROBABILITY = "probability"  # of the text
    SAMPLE = "sample"  # bytes that follow the text, sampled one by one
    GREEDY = "greedy"  # bytes that follow the text, the most likely one each time


class CoveringKind(StrEnum):
    """Which tokenizations of the text are followed."""

    CANONICAL = "canonical"  # those that are canonical for some longer text
    BEAM = "beam"  # all kinds, but at each byte only the most likely
    ENUMERATE = "enumerate"  # all, one by one: for short texts


@dataclass(frozen=True, slots=True)
class CharacterRequest:
    """A request about `text`, which follows `context`."""

    text: bytes
    context: bytes = b""
    ask: Ask = Ask.NEXT_BYTE
    covering: CoveringKind = CoveringKind.CANONICAL
    width: int = 8  # beam: how many bundles are followed
    threshold: float = 0.1  # canonical: other strings of a smaller probability are dropped
    num_members: int = 0  # next_byte: how many tokenizations to return
    max_bytes: int = 64  # sample, greedy
    seed: int | None = None  # sample
    deadline_ms: int | None = None  # from arrival at the server; later the request fails. None: a minute
    tenant: str = ""  # whose request it is; tenants share no states

    def __post_init__(self) -> None:
        """Raises InvalidRequestError if a value is out of range."""
        check_ranges(self, _RANGES, InvalidRequestError)
        num_new_bytes = self.max_bytes if self.ask in (Ask.SAMPLE, Ask.GREEDY) else 0
        num_bytes = len(self.context) + len(self.text) + num_new_bytes
        parts = "context, text and max_bytes" if num_new_bytes else "context and text"
        refuse(
            InvalidRequestError,
            {
                f"context has {len(self.context)} bytes; at most {MAX_CONTEXT_BYTES} are taken": (
                    len(self.context) > MAX_CONTEXT_BYTES
                ),
                f"tenant has more than {MAX_NAME_CHARS} characters": len(self.tenant) > MAX_NAME_CHARS,
                f"text is empty; {self.ask} is about its bytes": (
                    not self.text and self.ask in (Ask.SURPRISAL, Ask.PROBABILITY)
                ),
                f"text has {len(self.text)} bytes; at most {MAX_TEXT_BYTES} are taken, with context before them": (
                    len(self.text) > MAX_TEXT_BYTES
                ),
                f"{self.covering} takes up to {MAX_ENUMERATED_BYTES} bytes; {parts} are {num_bytes} together": (
                    self.covering is CoveringKind.ENUMERATE and num_bytes > MAX_ENUMERATED_BYTES
                ),
            },
        )


@dataclass(frozen=True, slots=True)
class CoveringMember:
    """The end of a tokenization of the text, after its stable tokens. Bytes that are not UTF-8 are written as \\xNN."""

    tokens: tuple[str, ...]
    ahead: str  # the bytes of the last token beyond the text; empty if any token may follow
    probability: float  # among all that are followed; if `ahead` is not empty, its first byte gets all of it


@dataclass(frozen=True, slots=True)
class NextByte:
    """The distribution of the next byte, and the most likely tokenizations of the text."""

    probabilities: tuple[float, ...]  # [257]: bytes 0 to 255, then the end of text
    members: tuple[CoveringMember, ...] = ()  # most likely first; up to the requested number


@dataclass(frozen=True, slots=True)
class Surprisals:
    """The surprisal of each byte of the text in bits, given the bytes before it."""

    surprisals: tuple[float, ...]  # [num_bytes]
    bits_per_byte: float  # their mean


@dataclass(frozen=True, slots=True)
class TextProbability:
    """How likely the text is. Logarithms to the base 2."""

    log2_prefix: float  # of a text that begins with this text, under the model that the covering defines
    log2_whole: float  # of exactly this text and its end
    log2_at_least: float  # lower bound of the exact probability, over all tokenizations


@dataclass(frozen=True, slots=True)
class Generated:
    """The generated bytes that follow the text."""

    data: bytes  # the last character may be incomplete if `max_bytes` was reached


CharacterAnswer = NextByte | Surprisals | TextProbability | Generated

# Input arrays: name -> (Triton type, NumPy type), each of shape [1]. Only `text` is required.
REQUEST_TYPES: FieldTypes = {
    "text": ("BYTES", np.object_),
    "context": ("BYTES", np.object_),
    "ask": ("BYTES", np.object_),
    "covering": ("BYTES", np.object_),
    "width": ("INT32", np.int32),
    "threshold": ("FP64", np.float64),
    "num_members": ("INT32", np.int32),
    "max_bytes": ("INT32", np.int32),
    "seed": ("INT64", np.int64),
    "deadline_ms": ("INT32", np.int32),
    "tenant": ("BYTES", np.object_),
}

# Output arrays, of shape [1] unless noted. An answer has only the arrays of its dataclass.
ANSWER_TYPES: FieldTypes = {
    "probabilities": ("FP64", np.float64),  # [257]
    "members": ("BYTES", np.object_),  # list of CoveringMember as JSON; absent if none
    "surprisals": ("FP64", np.float64),  # [num_bytes]
    "bits_per_byte": ("FP64", np.float64),
    "log2_prefix": ("FP64", np.float64),
    "log2_whole": ("FP64", np.float64),
    "log2_at_least": ("FP64", np.float64),
    "generated": ("BYTES", np.object_),  # as UTF-8; bytes that are not UTF-8 as \\xNN
    "generated_bytes": ("UINT8", np.uint8),  # [num_bytes]
}


request_to_arrays = partial(arrays.request_to_arrays, types=REQUEST_TYPES)
request_from_arrays = partial(arrays.request_from_arrays, kind=CharacterRequest, required="what is asked about")


def answer_to_arrays(answer: CharacterAnswer) -> dict[str, Array]:
    """The arrays of the answer's fields. All numbers are finite."""
    if isinstance(answer, Generated):
        return {
            "generated": to_array((answer.data.decode(errors="backslashreplace"),), np.object_),
            "generated_bytes": np.frombuffer(answer.data, np.uint8),
        }
    values = {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
    members = values.pop("members", ())
    written = {name: np.clip(np.array(value, np.float64, ndmin=1), _LEAST, -_LEAST) for name, value in values.items()}
    if members:
        written["members"] = to_array((json.dumps([dataclasses.asdict(member) for member in members]),), np.object_)
    return written


def answer_from_arrays(written: Mapping[str, Array]) -> CharacterAnswer:
    """The answer in the arrays of `answer_to_arrays`."""
    if "generated_bytes" in written:
        return Generated(written["generated_bytes"].tobytes())
    kind = next(kind for kind in (NextByte, Surprisals, TextProbability) if dataclasses.fields(kind)[0].name in written)
    types = {field.name: field.type for field in dataclasses.fields(kind)}
    numbers = {name: _from_finite(array) for name, array in written.items() if name != "members"}
    values: dict[str, Any] = {
        name: each if types[name] == tuple[float, ...] else each[0] for name, each in numbers.items()
    }
    if "members" in written:
        members = json.loads(to_text("members", written["members"].reshape(-1)[0]))
        values["members"] = read_json(members, types["members"])
    return kind(**values)


def _from_finite(array: Array) -> tuple[float, ...]:
    return tuple(np.where(np.abs(array) >= -_LEAST, np.copysign(np.inf, array), array).reshape(-1).tolist())
