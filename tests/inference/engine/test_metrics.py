import threading
from collections.abc import Iterable

import pytest

from inference.engine.metrics import METRICS, BufferedMetrics, Observation, Outcome, observe
from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError
from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason

_STATS = CompletionStats(queue_ms=1.0, first_chunk_ms=2.0, num_tokens=3, num_forwards=2, num_context_tokens=4)
_OUTCOMES = {
    FinishReason.DEADLINE: Outcome.DEADLINE,
    FinishReason.PREFILLED: Outcome.READ,
    FinishReason.CANCELLED: Outcome.CANCELLED,
    FinishReason.SUPERSEDED: Outcome.SUPERSEDED,
}


def _name(observations: Iterable[Observation]) -> dict[tuple[str, Outcome | None], float]:
    return {(seen.metric.name, seen.outcome): seen.value for seen in observations}


@pytest.mark.parametrize("reason", FinishReason)
def test_an_ended_request_adds_to_every_metric_its_cost_and_how_it_ended(reason: FinishReason) -> None:
    expected = {
        ("midtoken_requests_total", _OUTCOMES.get(reason, Outcome.COMPLETED)): 1,
        ("midtoken_queue_ms", None): 1.0,
        ("midtoken_first_chunk_ms", None): 2.0,
        ("midtoken_context_tokens_total", None): 4,
    }
    assert {(name, outcome is not None) for name, outcome in expected} == {
        (metric.name, metric.has_outcomes) for metric in METRICS
    }
    if reason is FinishReason.PREFILLED:
        del expected["midtoken_queue_ms", None]  # nobody has waited
    assert _name(observe(CompletionChunk("", finish_reason=reason, stats=_STATS))) == expected


def test_a_request_without_tokens_has_no_time_to_a_first_chunk() -> None:
    chunk = CompletionChunk("", finish_reason=FinishReason.CANCELLED, stats=CompletionStats())

    assert ("midtoken_first_chunk_ms", None) not in _name(observe(chunk))


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
    assert _name(observe(error)) == {("midtoken_requests_total", outcome): 1}


def test_a_request_that_was_superseded_before_it_began_is_counted_and_no_more() -> None:
    chunk = CompletionChunk("", finish_reason=FinishReason.SUPERSEDED, stats=CompletionStats(queue_ms=9.0))

    assert _name(observe(chunk)) == {("midtoken_requests_total", Outcome.SUPERSEDED): 1}


def test_counters_are_written_as_sums() -> None:
    written: list[Observation] = []
    observations = BufferedMetrics(written.append, pytest.fail, pause_s=3600)
    for outcome in (Outcome.COMPLETED, Outcome.SUPERSEDED, Outcome.SUPERSEDED):
        observations.add([Observation(METRICS[0], 1, outcome)])
    observations.close()

    assert written == [
        Observation(METRICS[0], 1, Outcome.COMPLETED),
        Observation(METRICS[0], 2, Outcome.SUPERSEDED),
    ]


def test_observations_are_written_while_more_may_come() -> None:
    is_written = threading.Event()
    observations = BufferedMetrics(lambda _: is_written.set(), pytest.fail, pause_s=0.01)
    observations.add([Observation(METRICS[1], 1)])
    assert is_written.wait(30)
    observations.close()


def test_what_cannot_be_written_is_logged_once_and_does_not_end_the_others() -> None:
    written: list[Observation] = []
    logged: list[str] = []

    def write(observation: Observation) -> None:
        if observation.value == 7:
            raise RuntimeError("no")
        written.append(observation)

    observations = BufferedMetrics(write, logged.append)
    observations.add([Observation(METRICS[1], value) for value in (7, 5, 7, 6)])
    observations.close()

    assert [seen.value for seen in written] == [5, 6]
    assert [text.partition(":")[0] for text in logged] == ["metrics are incomplete from now on"]
