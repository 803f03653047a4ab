import pytest

from inference.engine.metrics import METRICS, Outcome, observe_end, observe_error
from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError
from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason

_STATS = CompletionStats(
    queue_ms=1.0, first_chunk_ms=2.0, num_tokens=3, num_context_tokens=4, num_hot_hits=5, num_hot_misses=6
)


def _observe(reason: FinishReason, stats: CompletionStats = _STATS) -> dict[str, float]:
    chunk = CompletionChunk("", finish_reason=reason, stats=stats)
    return {seen.metric.name: seen.value for seen in observe_end(chunk)}


def test_an_ended_request_adds_its_cost() -> None:
    assert _observe(FinishReason.LENGTH) == {
        "midtoken_requests_total": 1,
        "midtoken_queue_ms": 1.0,
        "midtoken_first_chunk_ms": 2.0,
        "midtoken_hot_prefix_hits_total": 5,
        "midtoken_hot_prefix_misses_total": 6,
        "midtoken_context_tokens_total": 4,
    }


def test_a_request_without_tokens_has_no_time_to_a_first_chunk() -> None:
    assert "midtoken_first_chunk_ms" not in _observe(FinishReason.CANCELLED, CompletionStats())


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (FinishReason.CANCELLED, Outcome.CANCELLED),
        (FinishReason.DEADLINE, Outcome.DEADLINE),
        (FinishReason.END, Outcome.COMPLETED),
        (FinishReason.EXTENT, Outcome.COMPLETED),
        (FinishReason.STOP, Outcome.COMPLETED),
        (FinishReason.SUFFIX, Outcome.COMPLETED),
        (FinishReason.LENGTH, Outcome.COMPLETED),
    ],
)
def test_a_request_is_counted_by_how_it_ended(reason: FinishReason, outcome: Outcome) -> None:
    [first, *_] = observe_end(CompletionChunk("", finish_reason=reason, stats=_STATS))

    assert (first.metric.name, first.outcome) == ("midtoken_requests_total", outcome)


@pytest.mark.parametrize("reason", FinishReason)
def test_cancels_are_counted_separately(reason: FinishReason) -> None:
    assert ("midtoken_cancels_total" in _observe(reason)) == (reason is FinishReason.CANCELLED)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (InvalidRequestError("no"), Outcome.INVALID),
        (OverloadedError("no"), Outcome.OVERLOADED),
        (ServerError("no"), Outcome.FAILED),
        (MidtokenError("no"), Outcome.FAILED),
    ],
)
def test_an_error_is_counted_by_its_kind(error: MidtokenError, outcome: Outcome) -> None:
    [seen] = observe_error(error)

    assert (seen.metric.name, seen.value, seen.outcome) == ("midtoken_requests_total", 1, outcome)


def test_every_metric_is_added_to_by_some_request() -> None:
    """No metric is always zero."""
    seen = {*_observe(FinishReason.LENGTH), *_observe(FinishReason.CANCELLED)}

    assert {metric.name for metric in METRICS} == seen


def test_only_metrics_with_outcomes_are_observed_with_an_outcome() -> None:
    chunk = CompletionChunk("", finish_reason=FinishReason.CANCELLED, stats=_STATS)
    for seen in observe_end(chunk):
        assert (seen.outcome is not None) == seen.metric.has_outcomes
