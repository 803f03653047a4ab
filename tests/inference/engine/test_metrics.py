import re
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inference.engine.engine import EngineLoad
from inference.engine.metrics import Metrics
from inference.errors import InferenceServerUnreachableError, InvalidRequestError, MidtokenError, OverloadedError
from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason

_STATS = CompletionStats(
    queue_ms=100, first_token_ms=200, first_line_ms=400, num_tokens=3, num_context_tokens=20, num_cached_tokens=15,
    num_drafted=4, num_accepted=2,
)  # fmt: skip
_TIMES = ("queue_time", "time_to_first_token", "time_to_first_line", "request_duration")


_ENGINE: Any = SimpleNamespace(
    load=EngineLoad(2, 3, {"idle": 7, "limit": 9}), heartbeat=SimpleNamespace(measure_ms=lambda: 500.0)
)


def _count(end: CompletionChunk | MidtokenError) -> dict[str, float]:
    """What one request adds to a new engine's metrics: those that are not 0, without the buckets."""
    metrics = Metrics(_ENGINE)
    metrics.add(end, 0.5)
    samples = [each for family in text_string_to_metric_families(metrics.write()) for each in family.samples]
    return {
        re.sub(r"^midtoken_", "", sample.name) + "".join(f" {label}" for label in sample.labels.values()): sample.value
        for sample in samples
        if sample.value and "_process_" not in sample.name and not sample.name.endswith("_bucket")
    }


_GAUGES = {
    "requests_running": 2, "requests_waiting": 3, "engine_stall_seconds": 0.5, "memory_bytes idle": 7,
    "memory_bytes limit": 9,
}  # fmt: skip


def test_a_completed_request_adds_its_times_in_seconds_and_its_tokens() -> None:
    times = dict(zip(_TIMES, (0.1, 0.2, 0.4, 0.5), strict=True))
    assert _count(CompletionChunk("", finish_reason=FinishReason.EXTENT, stats=_STATS)) == {
        **_GAUGES,
        "requests_total completed": 1,
        **{f"{name}_seconds_sum": seconds for name, seconds in times.items()},
        **{f"{name}_seconds_count": 1 for name in times},
        "prompt_tokens_total": 20,
        "prompt_cached_tokens_total": 15,
        "generated_tokens_total": 3,
        "draft_tokens_total": 4,
        "draft_accepted_tokens_total": 2,
    }


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (FinishReason.PREFILLED, "prefetched"),
        (FinishReason.SUPERSEDED, "superseded"),
        (FinishReason.CANCELLED, "cancelled"),
        (FinishReason.DEADLINE, "deadline"),
    ],
)
def test_what_did_not_begin_to_answer_is_counted_apart_and_has_no_times_and_no_tokens(
    reason: FinishReason, outcome: str
) -> None:
    stats = CompletionStats(queue_ms=9, first_chunk_ms=9, num_context_tokens=20)
    counted = _count(CompletionChunk("", finish_reason=reason, stats=stats))
    assert counted == {**_GAUGES, f"requests_total {outcome}": 1}


def test_a_superseded_request_that_had_begun_is_no_completed_one() -> None:
    counted = _count(CompletionChunk("", finish_reason=FinishReason.SUPERSEDED, stats=_STATS))
    assert (counted["requests_total superseded"], counted["time_to_first_token_seconds_count"]) == (1, 1)
    assert {"requests_total completed", "request_duration_seconds_count"}.isdisjoint(counted)


@pytest.mark.parametrize(
    ("error", "outcome", "refusal"),
    [
        (InvalidRequestError("no"), "invalid", "invalid"),
        (OverloadedError("no"), "overloaded", "memory"),
        (OverloadedError("no", "queue"), "overloaded", "queue"),
        (OverloadedError("no", "shutdown"), "overloaded", "shutdown"),
        (InferenceServerUnreachableError("no"), "unreachable", "engine_unreachable"),
        (MidtokenError("no"), "failed", None),
    ],
)
def test_an_error_is_counted_by_its_kind_and_a_refusal_by_its_reason(
    error: MidtokenError, outcome: str, refusal: str | None
) -> None:
    refusals = {f"refusals_total {refusal}": 1} if refusal else {}
    assert _count(error) == {**_GAUGES, f"requests_total {outcome}": 1, **refusals}
