"""The metrics of an engine, in the text format of Prometheus and with the names and units of vLLM and Triton.

Triton's own see nothing of it: a decoupled model accepts each request at once, and the request then waits inside the
engine. So these come from the statistics in the last chunk. Heartbeats and probes are not counted.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.process_collector import ProcessCollector

from inference.engine.engine import Engine
from inference.errors import InferenceServerUnreachableError, InvalidRequestError, MidtokenError, OverloadedError
from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_TIMES = {
    "queue_time": "Time that a request waited before its first step",
    "time_to_first_token": "Time from a request's arrival to the choice of its first token",
    "time_to_first_line": "Time from a request's arrival until a whole line was sent, or a shorter text's end",
    "request_duration": "Time from the arrival to the end of a completed request",
}
_TOKENS = {  # with the fields of `CompletionStats`
    "prompt": ("num_context_tokens", "Prompt tokens of requests that got a first token"),
    "prompt_cached": (
        "num_cached_tokens",
        "Those of the prompt tokens that were in the prefix cache, as far as that is known",
    ),
    "generated": ("num_tokens", "Tokens generated"),
    "draft": ("num_drafted", "Draft tokens forwarded"),
    "draft_accepted": ("num_accepted", "Draft tokens that were right"),
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


def find_outcome(end: CompletionChunk | MidtokenError) -> Outcome:
    """Returns how a request has ended: by the last chunk of its answer, or by an error."""
    if isinstance(end, MidtokenError):
        return _ERRORS.get(type(end), Outcome.FAILED)
    return _OUTCOMES.get(end.finish_reason, Outcome.COMPLETED)


_REFUSALS = {Outcome.INVALID: "invalid", Outcome.UNREACHABLE: "engine_unreachable"}
_OVERLOADS = ("queue", "prefetch", "memory", "shutdown")  # the reasons of OverloadedError


class Metrics:
    """The metrics of one engine and of its process. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
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
            counted: Counter(f"midtoken_{name}_tokens", about, registry=self._registry)
            for name, (counted, about) in _TOKENS.items()
        }
        gauges: dict[tuple[str, str], Callable[[], float]] = {
            ("requests_running", "Requests whose prompt is prefilled or answered"): lambda: engine.load.num_running,
            ("requests_waiting", "Requests that wait for their first step"): lambda: engine.load.num_waiting,
            ("engine_stall_seconds", "Time without progress; 0 while idle"): lambda: (
                engine.heartbeat.measure_ms() / 1e3
            ),
        }
        for (name, about), measure in gauges.items():
            Gauge(f"midtoken_{name}", about, registry=self._registry).set_function(measure)
        memory = Gauge("midtoken_memory_bytes", "Of the prompts that are kept", ["kind"], registry=self._registry)
        for kind in engine.load.memory_bytes:
            memory.labels(kind).set_function(partial(lambda kind: engine.load.memory_bytes[kind], kind))

    def add(self, end: CompletionChunk | MidtokenError, duration_s: float) -> None:
        """Counts a request, by the last chunk of its answer or an error."""
        outcome = find_outcome(end)
        self._requests[outcome].inc()
        if isinstance(end, MidtokenError):
            reason = end.reason if isinstance(end, OverloadedError) else _REFUSALS.get(outcome)
            if reason is not None:
                self._refusals[reason].inc()
            return
        stats = end.stats or CompletionStats()
        if outcome is Outcome.COMPLETED:
            self._times["request_duration"].observe(duration_s)
        if stats.first_token_ms:
            self._times["queue_time"].observe(stats.queue_ms / 1e3)
            self._times["time_to_first_token"].observe(stats.first_token_ms / 1e3)
            for counted, counter in self._tokens.items():
                counter.inc(getattr(stats, counted) or 0)
        if stats.first_line_ms:
            self._times["time_to_first_line"].observe(stats.first_line_ms / 1e3)

    def write(self) -> str:
        """All of them."""
        return generate_latest(self._registry).decode()
