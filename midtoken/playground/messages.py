"""What the page sends and is sent about healing, as dataclasses and as JSON.

All texts to show are in printable form: blanks, tabs, line ends, control and bidirectional characters are marks.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Literal

from inference.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Question:
    """The text around the cursor of the page, after a change."""

    number: int  # answers repeat it; a new question supersedes those before it
    prefix: str
    suffix: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One character of the healed text, or a part of one if tokens divide it."""

    shown: str
    width: int  # columns of a terminal


@dataclass(frozen=True, slots=True)
class SpelledPath:
    """One crossing of the covering tree: the tokens that lead to it, and the best next one, which passes the cursor."""

    token_cells: tuple[int, ...]  # how many cells each token before the crossing covers
    num_shared: int  # how many of these tokens are on a path that comes earlier too
    share: float  # of the probability of all paths, with any token that may come next
    best_share: float  # the same with the best next token alone; the path with the largest is chosen
    next_token: str  # its part beyond the cursor; its other part covers all remaining cells
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Times:
    """What the exact answer cost."""

    queue_ms: float
    prompt_ms: float  # healing, and the layout of the prompt
    model_ms: float
    choice_ms: float
    total_ms: float
    num_context_tokens: int
    num_read_tokens: int  # the others were remembered
    num_forwards: int


@dataclass(frozen=True, slots=True)
class HealingPicture:
    """The exact strategy at the cursor."""

    number: int
    kept_tokens: tuple[str, ...]  # the last ones
    healed_tokens: tuple[str, ...]  # the tokenizer's own tokens of the healed bytes
    num_healed_bytes: int
    cells: tuple[Cell, ...]  # the healed bytes
    paths: tuple[SpelledPath, ...]
    typed: str  # the end of the cursor's line, for the completions
    times: Times
    kind: Literal["healing"] = "healing"


@dataclass(frozen=True, slots=True)
class StrategyPicture:
    """The completion of one healing strategy."""

    number: int
    healing: str
    completion: str
    is_cut: bool  # the completion goes on
    num_forwards: int
    took_ms: float  # without the wait for ghost text, which comes first
    kind: Literal["strategy"] = "strategy"


@dataclass(frozen=True, slots=True)
class ByteShare:
    """One byte that may come next."""

    shown: str
    note: str
    share: float


@dataclass(frozen=True, slots=True)
class Tokenization:
    """One tokenization that predicts the next byte."""

    tokens: tuple[str, ...]  # from the first that may still change
    ahead: str  # the end of the last token, beyond the cursor; empty: any token may follow
    share: float


@dataclass(frozen=True, slots=True)
class NextBytePicture:
    """The distribution of the next byte: its most likely values, and where they come from."""

    number: int
    bytes: tuple[ByteShare, ...]
    tokenizations: tuple[Tokenization, ...]
    took_ms: float
    kind: Literal["next_byte"] = "next_byte"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The completion server is being started or connected to."""

    number: int
    kind: Literal["waiting"] = "waiting"


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of the answer failed."""

    number: int
    part: Literal["connection", "healing", "strategy", "next_byte"]
    text: str  # for the user
    kind: Literal["failure"] = "failure"


Message = HealingPicture | StrategyPicture | NextBytePicture | Waiting | Failure


def to_json(message: Message) -> str:
    """Returns the message as a JSON object; the field `kind` tells them apart."""
    return json.dumps(dataclasses.asdict(message))


def read_question(text: str) -> Question:
    """Returns the question in a JSON object. Raises InvalidRequestError."""
    try:
        match json.loads(text):
            case {"number": int() as number, "prefix": str() as prefix, "suffix": str() as suffix}:
                return Question(number, prefix, suffix)
    except (ValueError, RecursionError):
        pass
    raise InvalidRequestError("a question of the page must be an object with number, prefix and suffix")
