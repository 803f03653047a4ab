import threading
from collections.abc import Iterable

import pytest

from inference.engine.metrics import METRICS, LateObservations, Observation, Outcome, observe
from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError
from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason

_STATS = CompletionStats(queue_ms=1.0, first_chunk_ms=2.0, num_tokens=3, num_context_tokens=4)
_Observed = dict[tuple[str, Outcome | None], float]

_ENDED: _Observed = {
    ("midtoken_queue_ms", None): 1.0,
    ("midtoken_first_chunk_ms", None): 2.0,
    ("midtoken_context_tokens_total", None): 4,
}
_COMPLETED: _Observed = {**_ENDED, ("midtoken_requests_total", Outcome.COMPLETED): 1}
_LATE: _Observed = {**_ENDED, ("midtoken_requests_total", Outcome.DEADLINE): 1}
_READ: _Observed = {**_ENDED, ("midtoken_requests_total", Outcome.READ): 1}
del _READ["midtoken_queue_ms", None]  # nobody has waited
_CANCELLED: _Observed = {**_ENDED, ("midtoken_requests_total", Outcome.CANCELLED): 1}
_SUPERSEDED: _Observed = {**_ENDED, ("midtoken_requests_total", Outcome.SUPERSEDED): 1}
_BY_REASON = {
    FinishReason.DEADLINE: _LATE,
    FinishReason.READ: _READ,
    FinishReason.CANCELLED: _CANCELLED,
    FinishReason.SUPERSEDED: _SUPERSEDED,
}


def _name(observations: Iterable[Observation]) -> _Observed:
    return {(seen.metric.name, seen.outcome): seen.value for seen in observations}


@pytest.mark.parametrize("reason", FinishReason)
def test_an_ended_request_adds_its_cost_and_is_counted_by_how_it_ended(reason: FinishReason) -> None:
    observed = _name(observe(CompletionChunk("", finish_reason=reason, stats=_STATS)))

    assert observed == _BY_REASON.get(reason, _COMPLETED)


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


def test_every_metric_is_added_to_by_some_request_with_an_outcome_if_it_has_outcomes() -> None:
    """No metric is always zero."""
    seen = {(name, outcome is not None) for name, outcome in _CANCELLED}

    assert seen == {(metric.name, metric.has_outcomes) for metric in METRICS}


_BY_OUTCOME, _TIME = METRICS[:2]


def test_close_writes_what_is_left() -> None:
    written: list[Observation] = []
    observations = LateObservations(written.append, pytest.fail)
    added = [Observation(_TIME, 5.0), Observation(_BY_OUTCOME, 1, Outcome.FAILED)] * 3
    observations.add(added)
    observations.close()

    assert written == added


def test_observations_are_written_while_more_may_come() -> None:
    is_written = threading.Event()
    observations = LateObservations(lambda _: is_written.set(), pytest.fail)
    observations.add([Observation(_TIME, 1)])
    assert is_written.wait(30)
    observations.close()


def test_what_cannot_be_written_is_logged_once_and_does_not_end_the_others() -> None:
    written: list[Observation] = []
    logged: list[str] = []

    def write(observation: Observation) -> None:
        if observation.value == 7:
            raise RuntimeError("no")
        written.append(observation)

    observations = LateObservations(write, logged.append)
    observations.add([Observation(_TIME, value) for value in (7, 5, 7, 6)])
    observations.close()

    assert [seen.value for seen in written] == [5, 6]
    assert [text.partition(":")[0] for text in logged] == ["metrics are incomplete from now on"]
