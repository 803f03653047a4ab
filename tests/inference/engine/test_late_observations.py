import threading
from collections import defaultdict

from inference.engine.metrics import METRICS, LateObservations, Observation, Outcome

_COUNT = next(metric for metric in METRICS if not metric.buckets_ms and not metric.has_outcomes)
_BY_OUTCOME = next(metric for metric in METRICS if metric.has_outcomes)
_TIME = next(metric for metric in METRICS if metric.buckets_ms)


def test_close_writes_what_is_left_with_counts_added_up() -> None:
    written: list[Observation] = []
    observations = LateObservations(written.append)
    for _ in range(3):
        observations.add([Observation(_COUNT, 2), Observation(_TIME, 5.0)])
    observations.add([Observation(_BY_OUTCOME, 1, Outcome.FAILED), Observation(_BY_OUTCOME, 1, Outcome.COMPLETED)])
    observations.close()

    counts: dict[Outcome | None, float] = defaultdict(float)
    for seen in written:
        counts[seen.outcome] += 0 if seen.metric.buckets_ms else seen.value
    assert counts == {None: 6, Outcome.FAILED: 1, Outcome.COMPLETED: 1}
    assert [seen.value for seen in written if seen.metric is _TIME] == [5.0] * 3


def test_observations_are_written_while_more_may_come() -> None:
    is_written = threading.Event()
    observations = LateObservations(lambda _: is_written.set())
    observations.add([Observation(_COUNT, 1)])
    assert is_written.wait(30)
    observations.close()
