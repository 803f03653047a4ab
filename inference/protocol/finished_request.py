"""What metrics, the log and traces tell of a request that has ended. It has no text, and no name of a user."""

import hashlib
import json
import logging
import time
from dataclasses import dataclass
from enum import StrEnum
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Self

from inference.errors import InferenceServerUnreachableError, InvalidRequestError, MidtokenError, OverloadedError
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason
from inference.protocol.traceparent import find_request_id

_DIGEST_CHARS = 12


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

    traceparent: str  # as its client sent it; empty: it sent none, or the request could not be read
    tenant: str  # a digest; empty: no tenant
    outcome: Outcome
    reason: str  # of the last candidate's end, or the kind of error; for `overloaded`, what had no room
    duration_s: float
    stats: CompletionStats

    @classmethod
    def of(cls, request: CompletionRequest | None, end: CompletionChunk | MidtokenError, duration_s: float) -> Self:
        """`request`: None if it could not be read. `end`: its last chunk or its error."""
        tenant = request.tenant if request else ""
        digest = tenant and hashlib.sha256(tenant.encode()).hexdigest()[:_DIGEST_CHARS]
        traceparent = request.traceparent if request else ""
        if isinstance(end, MidtokenError):
            outcome = _ERRORS.get(type(end), Outcome.FAILED)
            reason = end.reason if isinstance(end, OverloadedError) else type(end).__name__
            return cls(traceparent, digest, outcome, reason, duration_s, CompletionStats())
        assert end.stats is not None, "only the last chunk ends a request"
        outcome = _OUTCOMES.get(end.finish_reason, Outcome.COMPLETED)
        return cls(traceparent, digest, outcome, end.finish_reason or "", duration_s, end.stats)

    @property
    def num_cached_tokens(self) -> int:
        """The tokens of the prompt that were in the prefix cache."""
        return self.stats.num_context_tokens - self.stats.num_read_tokens if self.stats.first_token_ms else 0


class RequestLog:
    """A file with a line of JSON for each finished request."""

    def __init__(self, path: Path) -> None:
        """The file may be moved while it is written, as `logrotate` does. Raises OSError."""
        self._handler = WatchedFileHandler(path, encoding="utf-8")
        self.close = self._handler.close

    def write(self, finished: FinishedRequest) -> None:
        """Adds a line. What cannot be written, as on a full disk, is lost."""
        stats = finished.stats
        fields = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "request_id": find_request_id(finished.traceparent),
            "tenant": finished.tenant,
            "outcome": finished.outcome,
            "reason": finished.reason,
            "queue_ms": round(stats.queue_ms, 2),
            "first_token_ms": round(stats.first_token_ms, 2),
            "total_ms": round(1e3 * finished.duration_s, 2),
            "prompt_tokens": stats.num_context_tokens,
            "cached_tokens": finished.num_cached_tokens,
            "generated_tokens": stats.num_tokens,
        }
        self._handler.handle(logging.makeLogRecord({"msg": json.dumps(fields)}))
