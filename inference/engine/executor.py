"""What an engine has its jobs executed by: a model in this process, or servers that have one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from inference.engine.job import Job


class Executor(Protocol):
    """Chooses the tokens of an engine's jobs. The engine's thread calls all methods that are not marked thread-safe."""

    cache_tokens: int  # capacity for keys and values, in tokens of all sequences together
    runs_together: bool  # whether a step of many jobs takes less time than one for each
    reads_ahead: bool  # whether it can cache a second context of a prefetch beside the first
    runs_as: str  # for people: the dtype, the threads, and why

    @property
    def max_tokens(self) -> int:
        """The most tokens of one sequence."""

    @property
    def max_prefilled(self) -> int:
        """The most context tokens that one step of many jobs should prefill."""

    @property
    def problem(self) -> str:
        """Why no request would be answered now, as far as that is known; empty if one would. Thread-safe."""

    @property
    def memory_bytes(self) -> Mapping[str, int]:
        """The memory for prompts that are kept, by kind, and its limit; none if a server has it. Thread-safe."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything now. When this becomes true, the function of `start` is called."""

    def start(self, wake: Callable[[], None]) -> None:
        """Called once, first. `wake` is thread-safe."""

    def admit(self, job: Job) -> None:
        """Estimates how much a job has to prefill. Raises InvalidRequestError if its request cannot be executed."""

    def begin(self, job: Job) -> None:
        """Begins to work on a job. Raises OverloadedError."""

    def step(self, jobs: Sequence[Job], is_shared: bool) -> None:
        """Advances jobs that have begun.

        What goes wrong with one becomes its `failure`. `is_shared`: more than one person waits.
        """

    def end(self, job: Job) -> None:
        """Ends the work on a job, if it has begun. What it has read stays cached."""

    def close(self) -> None:
        """Ends everything."""
