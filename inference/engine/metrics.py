"""The metrics of an engine, in the text format of Prometheus and with the names and units of vLLM and Triton.

Triton's own see nothing of it: a decoupled model accepts each request at once, and the request then waits inside the
engine. So these come from the statistics in the last chunk. Heartbeats and probes are not counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.process_collector import ProcessCollector

from inference.errors import InferenceServerUnreachableError, InvalidRequestError, MidtokenError, OverloadedError
from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_TIMES = {
    "queue_time": "Time that a request waited before its first step",
    "time_to_first_token": "Time from a request's arrival to the choice of its first token",
    "time_to_first_line": "Time from a request's arrival until a whole line was sent, or a shorter text's end",
    "request_duration": "Time from the arrival to the end of a completed request",
}
_TOKENS = {
    "prompt": "Prompt tokens of requests that got a first token",
    "prompt_cached": "Those of the prompt tokens that were in the prefix cache",
    "generated": "Tokens generated",
    "draft": "Draft tokens forwarded",
    "draft_accepted": "Draft tokens that were right",
}


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


_REFUSALS = {Outcome.INVALID: "invalid", Outcome.UNREACHABLE: "engine_unreachable"}
_OVERLOADS = ("queue", "prefetch", "size", "memory", "shutdown")  # the reasons of OverloadedError


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What an engine has to do, and the memory that it uses for that."""

    num_running: int
    num_waiting: int
    memory_bytes: Mapping[str, int]  # by kind


class MeasuredEngine(Protocol):
    """An engine as metrics see it. Thread-safe."""

    @property
    def load(self) -> EngineLoad: ...

    def measure_heartbeat_ms(self) -> float: ...


class Metrics:
    """The metrics of one engine and of its process. Thread-safe."""

    def __init__(self, engine: MeasuredEngine) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a further series for each
        self._registry = CollectorRegistry()
        ProcessCollector("midtoken", registry=self._registry)
        requests = Counter("midtoken_requests", "Requests by how they ended", ["outcome"], registry=self._registry)
        self._requests = {outcome: requests.labels(outcome) for outcome in Outcome}
        refusals = Counter("midtoken_refusals", "Requests refused, by reason", ["reason"], registry=self._registry)
        self._refusals = {reason: refusals.labels(reason) for reason in (*_REFUSALS.values(), *_OVERLOADS)}
        self._times = {
            name: Histogram(f"midtoken_{name}_seconds", about, buckets=_SECONDS, registry=self._registry)
            for name, about in _TIMES.items()
        }
        self._tokens = {
            name: Counter(f"midtoken_{name}_tokens", about, registry=self._registry) for name, about in _TOKENS.items()
        }
        self._add_gauges(engine)

    def add(self, finished: FinishedRequest) -> None:
        """Counts a request."""
        stats, outcome = finished.stats, finished.outcome
        self._requests[outcome].inc()
        if outcome is Outcome.OVERLOADED or outcome in _REFUSALS:
            self._refusals[_REFUSALS.get(outcome, finished.reason)].inc()
        if outcome is Outcome.COMPLETED:
            self._times["request_duration"].observe(finished.duration_s)
        if stats.first_token_ms:
            self._times["queue_time"].observe(stats.queue_ms / 1e3)
            self._times["time_to_first_token"].observe(stats.first_token_ms / 1e3)
            self._tokens["prompt"].inc(stats.num_context_tokens)
            self._tokens["prompt_cached"].inc(finished.num_cached_tokens)
            self._tokens["generated"].inc(stats.num_tokens)
            self._tokens["draft"].inc(stats.num_drafted)
            self._tokens["draft_accepted"].inc(stats.num_accepted)
        if stats.first_line_ms:
            self._times["time_to_first_line"].observe(stats.first_line_ms / 1e3)

    def write(self) -> str:
        """All of them."""
        return generate_latest(self._registry).decode()

    def _add_gauges(self, engine: MeasuredEngine) -> None:
        gauges: dict[tuple[str, str], Callable[[], float]] = {
            ("requests_running", "Requests whose prompt is read or answered"): lambda: engine.load.num_running,
            ("requests_waiting", "Requests that wait for their first step"): lambda: engine.load.num_waiting,
            ("engine_stall_seconds", "Time without progress; 0 while idle"): lambda: (
                engine.measure_heartbeat_ms() / 1e3
            ),
        }
        for (name, about), measure in gauges.items():
            Gauge(f"midtoken_{name}", about, registry=self._registry).set_function(measure)
        memory = Gauge("midtoken_memory_bytes", "Of the prompts that are kept", ["kind"], registry=self._registry)
        for kind in engine.load.memory_bytes:
            memory.labels(kind).set_function(partial(lambda kind: engine.load.memory_bytes[kind], kind))
