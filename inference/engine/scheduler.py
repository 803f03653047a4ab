"""Which jobs step now. Knows their sizes and their order, but no model and no clock."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from inference.errors import OverloadedError


class Sizeable(Protocol):
    """What the scheduler needs to know of a job."""

    @property
    def num_sequences(self) -> int:
        """Candidates that step together."""
        ...

    @property
    def num_tokens(self) -> int:
        """Tokens for which its caches have room, all sequences together."""
        ...


JobT = TypeVar("JobT", bound=Sizeable)


class Scheduler(Generic[JobT]):
    """First come, first served. A job runs once all its sequences fit beside those of the running jobs."""

    def __init__(self, max_sequences: int, max_tokens: int) -> None:
        self._max_sequences = max_sequences
        self._max_tokens = max_tokens
        self._waiting: deque[JobT] = deque()
        self._running: list[JobT] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def __iter__(self) -> Iterator[JobT]:
        """All jobs: first those that run, then those that wait. Jobs may be removed meanwhile."""
        return iter([*self._running, *self._waiting])

    @property
    def running(self) -> tuple[JobT, ...]:
        """The jobs that run, oldest first."""
        return tuple(self._running)

    def add(self, job: JobT) -> None:
        """Puts the job behind those that wait. Raises OverloadedError where it is too large to run at all."""
        if job.num_sequences > self._max_sequences or job.num_tokens > self._max_tokens:
            raise OverloadedError(
                f"the request needs {job.num_sequences} sequences and room for {job.num_tokens} tokens; "
                f"this server has {self._max_sequences} (max_sequences) and {self._max_tokens} (cache_tokens)"
            )
        self._waiting.append(job)

    def admit(self) -> list[JobT]:
        """The jobs that now fit; they run from here on."""
        admitted = []
        while self._waiting and self._fits(self._waiting[0]):
            admitted.append(self._waiting.popleft())
            self._running.append(admitted[-1])
        return admitted

    def remove(self, job: JobT) -> None:
        """Takes out a job that runs or waits."""
        if job in self._running:
            self._running.remove(job)
        else:
            self._waiting.remove(job)

    def _fits(self, job: JobT) -> bool:
        num_sequences = sum(other.num_sequences for other in self._running) + job.num_sequences
        num_tokens = sum(other.num_tokens for other in self._running) + job.num_tokens
        return num_sequences <= self._max_sequences and num_tokens <= self._max_tokens
