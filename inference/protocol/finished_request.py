"""What metrics tell of a request that has ended. It has no text, and no name of a user."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from inference.errors import InferenceServerUnreachableError, InvalidRequestError, MidtokenError, OverloadedError
from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason


class Outcome(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    PREFETCHED = "prefetched"  # nobody waited
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    INVALID = "invalid"
    OVERLOADED = "overloaded"
    UNREACHABLE = "unreachable"  # the server of an `--engine` did not answer
    FAILED = "failed"


_OUTCOMES: dict[FinishReason | None, Outcome] = {
    FinishReason.CANCELLED: Outcome.CANCELLED,
    FinishReason.DEADLINE: Outcome.DEADLINE,
    FinishReason.SUPERSEDED: Outcome.SUPERSEDED,
    FinishReason.PREFILLED: Outcome.PREFETCHED,
}
_ERRORS: dict[type[MidtokenError], Outcome] = {
    InvalidRequestError: Outcome.INVALID,
    OverloadedError: Outcome.OVERLOADED,
    InferenceServerUnreachableError: Outcome.UNREACHABLE,
}


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """One request that has ended."""

    outcome: Outcome
    reason: str  # of the last candidate's end, or the kind of error; for `overloaded`, what had no room
    duration_s: float
    stats: CompletionStats

    @classmethod
    def of(cls, end: CompletionChunk | MidtokenError, duration_s: float) -> Self:
        """`end`: the last chunk of its answer, or the error."""
        if isinstance(end, MidtokenError):
            outcome = _ERRORS.get(type(end), Outcome.FAILED)
            reason = end.reason if isinstance(end, OverloadedError) else type(end).__name__
            return cls(outcome, reason, duration_s, CompletionStats())
        assert end.stats is not None, "only the last chunk ends a request"
        outcome = _OUTCOMES.get(end.finish_reason, Outcome.COMPLETED)
        return cls(outcome, end.finish_reason or "", duration_s, end.stats)

    @property
    def num_cached_tokens(self) -> int:
        """The tokens of the prompt that were in the prefix cache."""
        return self.stats.num_context_tokens - self.stats.num_read_tokens if self.stats.first_token_ms else 0
