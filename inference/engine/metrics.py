"""The server's metrics in addition to Triton's, and what each finished request adds to them.

Triton's queue metrics are empty: a decoupled model accepts each request at once, and the request then waits inside the
engine. So these numbers come from the statistics in the last chunk. Heartbeat requests are not counted.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, describe_failure
from inference.platforms import StrEnum
from inference.protocol.completion import CompletionChunk, FinishReason


class Outcome(StrEnum):
    """How a request ended; the label of `midtoken_requests_total`."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    SUPERSEDED = "superseded"
    INVALID = "invalid"
    OVERLOADED = "overloaded"
    FAILED = "failed"
    READ = "read"  # a prefetch: nobody waited


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of time series: a histogram if it has buckets, otherwise a counter."""

    name: str
    description: str
    has_outcomes: bool = False  # one time series for each Outcome
    buckets_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """The contribution of one request to a metric."""

    metric: Metric
    value: float
    outcome: Outcome | None = None  # None if the metric has no outcomes


_BUCKETS_MS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
_REQUESTS = Metric("midtoken_requests_total", "Completion requests by how they ended", has_outcomes=True)
_QUEUE = Metric("midtoken_queue_ms", "Time from a request's arrival to its first step", buckets_ms=_BUCKETS_MS)
_FIRST_CHUNK = Metric("midtoken_first_chunk_ms", "Time from arrival to the first chunk", buckets_ms=_BUCKETS_MS)
_CONTEXT = Metric("midtoken_context_tokens_total", "Context tokens of all requests")

METRICS = (_REQUESTS, _QUEUE, _FIRST_CHUNK, _CONTEXT)


def observe(end: CompletionChunk | MidtokenError) -> Iterator[Observation]:
    """The observations for a request that ended with this last chunk or error."""
    if isinstance(end, MidtokenError):
        yield Observation(_REQUESTS, 1, _ERRORS.get(type(end), Outcome.FAILED))
        return
    assert end.stats is not None, "only the last chunk ends a request"
    outcome = _OUTCOMES.get(end.finish_reason, Outcome.COMPLETED)
    yield Observation(_REQUESTS, 1, outcome)
    if outcome is not Outcome.READ:
        yield Observation(_QUEUE, end.stats.queue_ms)
    if end.stats.num_tokens:
        yield Observation(_FIRST_CHUNK, end.stats.first_chunk_ms)
    yield Observation(_CONTEXT, end.stats.num_context_tokens)


_ERRORS: dict[type[MidtokenError], Outcome] = {
    InvalidRequestError: Outcome.INVALID,
    OverloadedError: Outcome.OVERLOADED,
}
_OUTCOMES: dict[FinishReason | None, Outcome] = {
    FinishReason.CANCELLED: Outcome.CANCELLED,
    FinishReason.DEADLINE: Outcome.DEADLINE,
    FinishReason.SUPERSEDED: Outcome.SUPERSEDED,
    FinishReason.READ: Outcome.READ,
}


class LateObservations:
    """Observations that are written in a thread of its own."""

    def __init__(self, write: Callable[[Observation], None], log: Callable[[str], object]) -> None:
        """`write`: called by one thread only. What cannot be written is lost; the first is logged."""
        self._write = write
        self._log = log
        self._has_failed = False
        self._thread = ThreadPoolExecutor(1, "midtoken-metrics")

    def add(self, observations: Iterable[Observation]) -> None:
        """Writes the observations later. Thread-safe."""
        for observation in observations:
            self._thread.submit(self._write_or_log, observation)

    def close(self) -> None:
        """Writes what is left and stops the thread."""
        self._thread.shutdown()

    def _write_or_log(self, observation: Observation) -> None:
        try:
            self._write(observation)
        except Exception as error:  # of any kind: it would be lost
            if not self._has_failed:
                self._log(f"metrics are incomplete from now on: {describe_failure(error)}")
            self._has_failed = True
