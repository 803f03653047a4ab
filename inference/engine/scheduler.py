"""Who steps now. Knows room and order, no model and no clock."""

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
        """Most tokens it can come to hold in the KV store."""
        ...


JobT = TypeVar("JobT", bound=Sizeable)


class Scheduler(Generic[JobT]):
    """First come, first served; a job runs when all of it fits beside those that run."""

    def __init__(self, max_sequences: int, max_tokens: int) -> None:
        self._max_sequences = max_sequences
        self._max_tokens = max_tokens
        self._waiting: deque[JobT] = deque()
        self._running: list[JobT] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def __iter__(self) -> Iterator[JobT]:
        """All jobs, those that run first."""
        return iter([*self._running, *self._waiting])

    @property
    def running(self) -> tuple[JobT, ...]:
        """The jobs that step now, oldest first."""
        return tuple(self._running)

    def add(self, job: JobT) -> None:
        """Lets the job wait its turn. Raises OverloadedError where it could never run."""
        if job.num_sequences > self._max_sequences or job.num_tokens > self._max_tokens:
            raise OverloadedError(
                f"the request needs {job.num_sequences} sequences and {job.num_tokens} tokens; "
                f"this server has {self._max_sequences} and {self._max_tokens}"
            )
        self._waiting.append(job)

    def admit(self) -> list[JobT]:
        """Moves the jobs that now fit from waiting to running and returns them."""
        admitted = []
        while self._waiting and self._fits(self._waiting[0]):
            admitted.append(self._waiting.popleft())
            self._running.append(admitted[-1])
        return admitted

    def remove(self, job: JobT) -> None:
        """Forgets a job, wherever it stands."""
        if job in self._running:
            self._running.remove(job)
        else:
            self._waiting.remove(job)

    def _fits(self, job: JobT) -> bool:
        num_sequences = sum(other.num_sequences for other in self._running) + job.num_sequences
        num_tokens = sum(other.num_tokens for other in self._running) + job.num_tokens
        return num_sequences <= self._max_sequences and num_tokens <= self._max_tokens
