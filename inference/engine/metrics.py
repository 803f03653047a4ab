"""The server's metrics in addition to Triton's, and what each finished request adds to them.

Triton's queue metrics are empty: a decoupled model accepts each request at once, and the request then waits inside the
engine. So these numbers come from the statistics in the last chunk. Heartbeat requests are not counted.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, describe_failure
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


_PAUSE_S = 1.0  # between two writes; those who collect metrics ask each ten seconds or so
_BUCKETS_MS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
_REQUESTS = Metric("midtoken_requests_total", "Completion requests by how they ended", has_outcomes=True)
_QUEUE = Metric("midtoken_queue_ms", "Time from a request's arrival to its first step or end", buckets_ms=_BUCKETS_MS)
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
    if outcome is Outcome.SUPERSEDED and not end.stats.num_forwards:
        return  # it never began
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
    FinishReason.PREFILLED: Outcome.READ,
}


class BufferedMetrics:
    """Observations that are written once a second, in a thread of its own. Counters are added up until then.

    Each write is a round trip between two processes. Of a busy server, most requests are superseded, and must cost
    next to nothing.
    """

    def __init__(
        self, write: Callable[[Observation], None], log: Callable[[str], object], pause_s: float = _PAUSE_S
    ) -> None:
        """`write`: called by one thread only. What cannot be written is lost; the first is logged."""
        self._write, self._log, self._pause_s = write, log, pause_s
        self._has_failed = False
        self._lock = threading.Lock()
        self._sums: defaultdict[tuple[Metric, Outcome | None], float] = defaultdict(float)
        self._values: list[Observation] = []  # of histograms, which take one at a time
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="midtoken-metrics", daemon=True)
        self._thread.start()

    def add(self, observations: Iterable[Observation]) -> None:
        """Writes the observations later. Thread-safe."""
        with self._lock:
            for seen in observations:
                if seen.metric.buckets_ms:
                    self._values.append(seen)
                else:
                    self._sums[seen.metric, seen.outcome] += seen.value

    def close(self) -> None:
        """Writes what is left and stops the thread."""
        self._is_closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed.wait(self._pause_s):
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        with self._lock:
            sums, self._sums = self._sums, defaultdict(float)
            values, self._values = self._values, []
        for seen in [*values, *(Observation(metric, value, outcome) for (metric, outcome), value in sums.items())]:
            try:
                self._write(seen)
            except Exception as error:  # of any kind: it would be lost
                if not self._has_failed:
                    self._log(f"metrics are incomplete from now on: {describe_failure(error)}")
                self._has_failed = True
