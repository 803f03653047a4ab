"""Decides which requests step next, from their size and the order of their arrival. Uses no model.

The aim is completed requests, not many started ones: a request is worth nothing once its user has typed on. So

1. a person who waits comes before a prefetch;
2. one that has taken many steps gives way to those that took few;
3. one that is being decoded goes on: it is nearest to its end;
4. a request with a long context to prefill comes after those that are nearly ready to decode: in the same time,
   several of them complete;
5. the newest request comes first: its user has waited least, and will not type on so soon;
6. but if a request has waited for long, its user is waiting and does not type on; and a request without a document is
   never superseded. These come before the others, in the order of their arrival, whatever they have to prefill;
7. a newer request for a document supersedes the older ones; but a prefetch supersedes prefetches only.
"""

from collections.abc import Callable, Iterator

from inference.engine.job import Job
from inference.errors import InvalidRequestError

_STEP_LEVELS = (256, 1024)  # a request with more steps than one of them gives way; a line never has so many
_LONG_PREFILL = 64  # tokens
_LONG_WAIT_S = 0.6  # 99 of 100 people who type on have done so by then; most of the others wait


class Scheduler:
    """The requests of an engine, in the order of their arrival."""

    def __init__(self, max_sequences: int, max_tokens: int, clock: Callable[[], float]) -> None:
        self._max_sequences = max_sequences
        self._max_tokens = max_tokens
        self._jobs: list[Job] = []
        self._clock = clock

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        """All requests. They may be removed during the iteration."""
        return iter(list(self._jobs))

    def add(self, job: Job) -> list[Job]:
        """Adds a job. Returns those that it supersedes, which are still there."""
        newer = job.request
        superseded = [
            other
            for other in self._jobs
            if newer.document
            and (newer.tenant, newer.document) == (other.request.tenant, other.request.document)
            and (other.request.is_prefetch or not newer.is_prefetch)
        ]
        self._jobs.append(job)
        return superseded

    def remove(self, job: Job) -> None:
        """Removes a job."""
        self._jobs.remove(job)

    def sort(self) -> list[Job]:
        """All requests, those that should step first at the front."""
        now = self._clock()
        return [job for _, job in sorted(enumerate(self._jobs), key=lambda pair: _rank(pair[1], pair[0], now))]

    def check_size(self, job: Job) -> None:
        """Raises InvalidRequestError if the job is too large to run at all."""
        if job.request.num_candidates > self._max_sequences or job.num_tokens > self._max_tokens:
            raise InvalidRequestError(
                f"the request needs {job.request.num_candidates} sequences and room for {job.num_tokens} tokens; "
                f"this server has {self._max_sequences} (max_sequences) and {self._max_tokens} (cache_tokens)"
            )

    def has_room(self, job: Job) -> bool:
        """True if the job, which is not begun, can begin beside those that are."""
        all_begun = [job, *(other for other in self._jobs if other.is_begun)]
        num_sequences = sum(each.request.num_candidates for each in all_begun)
        num_tokens = sum(each.num_tokens for each in all_begun)
        return num_sequences <= self._max_sequences and num_tokens <= self._max_tokens


def _rank(job: Job, arrival: int, now: float) -> tuple[bool | int, ...]:
    is_waited_for = not job.request.document or now - job.submitted_at >= _LONG_WAIT_S
    must_prefill = not is_waited_for and job.num_to_prefill > _LONG_PREFILL
    return (
        job.request.is_prefetch,
        sum(job.num_steps > limit for limit in _STEP_LEVELS),
        not job.is_begun or must_prefill,
        must_prefill,
        not job.is_begun,
        not is_waited_for,
        arrival if is_waited_for else -arrival,
    )
