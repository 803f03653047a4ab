from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.engine.scheduler import Scheduler
from inference.errors import OverloadedError


@dataclass(eq=False)
class _Job:
    num_sequences: int = 1
    num_tokens: int = 1


_sizes = st.builds(_Job, st.integers(1, 3), st.integers(1, 10))


@given(jobs=st.lists(_sizes, max_size=10), ends=st.lists(st.integers(0, 9), max_size=10))
def test_jobs_run_in_order_and_within_the_room(jobs: list[_Job], ends: list[int]) -> None:
    scheduler: Scheduler[_Job] = Scheduler(max_sequences=4, max_tokens=20)
    for job in jobs:
        scheduler.add(job)
    begun = scheduler.admit()
    for end in ends:
        if scheduler.running:
            scheduler.remove(scheduler.running[end % len(scheduler.running)])
        begun += scheduler.admit()

        assert sum(job.num_sequences for job in scheduler.running) <= 4
        assert sum(job.num_tokens for job in scheduler.running) <= 20
    assert begun == jobs[: len(begun)]


@given(jobs=st.lists(_sizes, max_size=10))
def test_the_first_waiting_job_does_not_fit(jobs: list[_Job]) -> None:
    scheduler: Scheduler[_Job] = Scheduler(max_sequences=4, max_tokens=20)
    for job in jobs:
        scheduler.add(job)

    begun = scheduler.admit()

    if len(begun) < len(jobs):
        together = [*begun, jobs[len(begun)]]
        assert sum(job.num_sequences for job in together) > 4 or sum(job.num_tokens for job in together) > 20


def test_jobs_lists_running_jobs_before_waiting_ones() -> None:
    scheduler: Scheduler[_Job] = Scheduler(max_sequences=1, max_tokens=20)
    first, second = _Job(), _Job()
    scheduler.add(first)
    scheduler.add(second)
    scheduler.admit()

    assert list(scheduler) == [first, second]
    assert (len(scheduler), scheduler.running) == (2, (first,))


def test_a_job_can_be_removed_whether_it_runs_or_waits() -> None:
    scheduler: Scheduler[_Job] = Scheduler(max_sequences=1, max_tokens=20)
    first, second = _Job(), _Job()
    scheduler.add(first)
    scheduler.add(second)
    scheduler.admit()

    scheduler.remove(second)
    scheduler.remove(first)

    assert len(scheduler) == 0


@pytest.mark.parametrize("job", [_Job(num_sequences=5), _Job(num_tokens=21)])
def test_a_job_that_could_never_run_is_refused(job: _Job) -> None:
    scheduler: Scheduler[_Job] = Scheduler(max_sequences=4, max_tokens=20)

    with pytest.raises(OverloadedError):
        scheduler.add(job)

    assert len(scheduler) == 0
