"""The server's metrics in addition to Triton's, and what each finished request adds to them.

Triton's queue metrics are empty: a decoupled model accepts each request at once, and the request then waits inside the
engine. So these numbers come from the statistics in the last chunk. Heartbeat requests are not counted.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, describe_failure
from inference.platforms import StrEnum
from inference.protocol.completion import CompletionChunk, FinishReason


class Outcome(StrEnum):
    """How a request ended; the label of `midtoken_requests_total`."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
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
_CANCELS = Metric("midtoken_cancels_total", "Completions that were cancelled before they were complete")
_QUEUE = Metric("midtoken_queue_ms", "Time from a request's arrival to its first step", buckets_ms=_BUCKETS_MS)
_FIRST_CHUNK = Metric("midtoken_first_chunk_ms", "Time from arrival to the first chunk", buckets_ms=_BUCKETS_MS)
_HOT_HITS = Metric("midtoken_hot_prefix_hits_total", "Allowed sets found in the hot-prefix cache")
_HOT_MISSES = Metric("midtoken_hot_prefix_misses_total", "Allowed sets that had to be derived")
_CONTEXT = Metric("midtoken_context_tokens_total", "Context tokens of all requests")

METRICS = (_REQUESTS, _CANCELS, _QUEUE, _FIRST_CHUNK, _HOT_HITS, _HOT_MISSES, _CONTEXT)


def observe_end(chunk: CompletionChunk) -> Iterator[Observation]:
    """The observations for a request that ended with this last chunk."""
    assert chunk.stats is not None, "only the last chunk ends a request"
    stats = chunk.stats
    outcome = _OUTCOMES.get(chunk.finish_reason, Outcome.COMPLETED)
    yield Observation(_REQUESTS, 1, outcome)
    if outcome is Outcome.CANCELLED:
        yield Observation(_CANCELS, 1)
    if outcome is not Outcome.READ:
        yield Observation(_QUEUE, stats.queue_ms)
    if stats.num_tokens:
        yield Observation(_FIRST_CHUNK, stats.first_chunk_ms)
    yield Observation(_HOT_HITS, stats.num_hot_hits)
    yield Observation(_HOT_MISSES, stats.num_hot_misses)
    yield Observation(_CONTEXT, stats.num_context_tokens)


def observe_error(error: MidtokenError) -> Iterator[Observation]:
    """The observations for a request that ended in an error."""
    outcome = Outcome.FAILED
    if isinstance(error, InvalidRequestError):
        outcome = Outcome.INVALID
    elif isinstance(error, OverloadedError):
        outcome = Outcome.OVERLOADED
    yield Observation(_REQUESTS, 1, outcome)


_OUTCOMES: dict[FinishReason | None, Outcome] = {
    FinishReason.CANCELLED: Outcome.CANCELLED,
    FinishReason.DEADLINE: Outcome.DEADLINE,
    FinishReason.READ: Outcome.READ,
}


_DELAY_S = 0.25


class LateObservations:
    """Observations that were not written yet."""

    def __init__(self, write: Callable[[Observation], None], log: Callable[[str], object]) -> None:
        """Starts the thread, the only one that calls `write`. What cannot be written is lost; the first is logged."""
        self._write = write
        self._log = log
        self._has_failed = False
        self._queue: queue.SimpleQueue[Observation | None] = queue.SimpleQueue()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="midtoken-metrics", daemon=True)
        self._thread.start()

    def add(self, observations: Iterable[Observation]) -> None:
        """Writes the observations later. Thread-safe."""
        for observation in observations:
            self._queue.put(observation)

    def close(self) -> None:
        """Writes what is left and stops the thread."""
        self._is_closed.set()
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            self._is_closed.wait(_DELAY_S)
            observations = [first]
            while not self._queue.empty() and (more := self._queue.get()) is not None:
                observations.append(more)
            for observation in _add_up(observations):
                self._write_or_log(observation)
            if self._is_closed.is_set() and self._queue.empty():
                return

    def _write_or_log(self, observation: Observation) -> None:
        try:
            self._write(observation)
        except Exception as error:  # of any kind: nobody else reads the queue
            if not self._has_failed:
                self._log(f"metrics are incomplete from now on: {describe_failure(error)}")
            self._has_failed = True


def _add_up(observations: Iterable[Observation]) -> list[Observation]:
    """One observation for each count, and those of distributions as they are."""
    sums: dict[Observation, float] = {}
    others = []
    for seen in observations:
        if seen.metric.buckets_ms:
            others.append(seen)
        else:
            key = Observation(seen.metric, 0, seen.outcome)
            sums[key] = sums.get(key, 0) + seen.value
    return [*(Observation(key.metric, value, key.outcome) for key, value in sums.items()), *others]
