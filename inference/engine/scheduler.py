"""Decides which jobs run, from their sizes and their order. Uses no model and no clock."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from inference.errors import OverloadedError


class Sizeable(Protocol):
    """The size of a job."""

    @property
    def num_sequences(self) -> int:
        """The number of candidates, which step together."""
        ...

    @property
    def num_tokens(self) -> int:
        """The token capacity of its caches, all sequences together."""
        ...


JobT = TypeVar("JobT", bound=Sizeable)


class Scheduler(Generic[JobT]):
    """First come, first served. A job runs once all its sequences fit in addition to those of the running jobs."""

    def __init__(self, max_sequences: int, max_tokens: int) -> None:
        self._max_sequences = max_sequences
        self._max_tokens = max_tokens
        self._waiting: deque[JobT] = deque()
        self._running: list[JobT] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def __iter__(self) -> Iterator[JobT]:
        """All jobs: the running ones, then the waiting ones. Jobs may be removed during the iteration."""
        return iter([*self._running, *self._waiting])

    @property
    def running(self) -> tuple[JobT, ...]:
        """The running jobs, oldest first."""
        return tuple(self._running)

    def add(self, job: JobT) -> None:
        """Appends the job to the queue. Raises OverloadedError if it is too large to run at all."""
        if job.num_sequences > self._max_sequences or job.num_tokens > self._max_tokens:
            raise OverloadedError(
                f"the request needs {job.num_sequences} sequences and room for {job.num_tokens} tokens; "
                f"this server has {self._max_sequences} (max_sequences) and {self._max_tokens} (cache_tokens)"
            )
        self._waiting.append(job)

    def admit(self) -> list[JobT]:
        """Moves the waiting jobs that now fit to the running ones, and returns them."""
        admitted = []
        while self._waiting and self._fits(self._waiting[0]):
            admitted.append(self._waiting.popleft())
            self._running.append(admitted[-1])
        return admitted

    def remove(self, job: JobT) -> None:
        """Removes a running or waiting job."""
        if job in self._running:
            self._running.remove(job)
        else:
            self._waiting.remove(job)

    def _fits(self, job: JobT) -> bool:
        num_sequences = sum(other.num_sequences for other in self._running) + job.num_sequences
        num_tokens = sum(other.num_tokens for other in self._running) + job.num_tokens
        return num_sequences <= self._max_sequences and num_tokens <= self._max_tokens
