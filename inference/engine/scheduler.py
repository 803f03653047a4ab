"""Decides which requests step next, from their sizes, their order and the work done for them. Uses no model.

The aim is completed requests, not many started ones: a request is worth nothing once its user has typed on. So

1. a person who waits comes before a prefetch, and a request that can be in time before one that will be too late;
2. one that much work was done for gives way to those with little, and a tenant that was served far more than the others
   gives way to them;
3. one that is being decoded goes on: it is nearest to its end;
4. tenants that were served clearly less than the others come first. While several tenants wait, each has one request
   in a step, so that nobody gets more by sending more; and while one that was served less waits with a single request,
   the others with several pause. A quarter of the room is kept for tenants that have no running request;
5. a request with a long context to prefill comes after those that are nearly ready to decode: in the same time,
   several of them complete;
6. the newest request comes first: its user has waited least, and will not type on so soon;
7. but if a request has waited for long, its user is waiting and does not type on; and a request without a document is
   never superseded. These come before the others, in the order of their arrival, whatever they have to prefill;
8. a newer request for a document supersedes the older ones; but a prefetch supersedes prefetches only.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from inference.engine.prefill_speed import PrefillSpeed
from inference.errors import OverloadedError
from inference.protocol.completion import CompletionRequest

_WORK_LEVELS = (256.0, 1024.0)  # a request whose work exceeds one of them gives way to those below; a line never does
_LONG_PREFILL = 64  # tokens
_LONG_WAIT_S = 0.6  # 99 of 100 people who type on have done so by then; most of the others wait
_ROOM_FOR_MORE = 0.75  # of all room; the rest is for tenants that have no running request


class Schedulable(Protocol):
    """What the scheduler must know of a request."""

    work: float  # so far; a decoded token is about one

    @property
    def request(self) -> CompletionRequest:
        """Whose it is, which document it completes, who waits for it, and how many candidates it has."""

    @property
    def submitted_at(self) -> float:
        """When it arrived, in seconds of the engine's clock."""

    @property
    def is_begun(self) -> bool:
        """Whether it has a sequence."""

    @property
    def num_to_prefill(self) -> int:
        """The context tokens to forward before its first token, as far as that is known."""

    @property
    def num_tokens(self) -> int:
        """The token capacity of its caches, all sequences together."""

    def is_late(self, now: float) -> bool:
        """True if its deadline has passed at that time."""


T = TypeVar("T", bound=Schedulable)


class Scheduler(Generic[T]):
    """The requests of an engine, in the order of their arrival."""

    def __init__(
        self, max_sequences: int, max_tokens: int, clock: Callable[[], float], speed: PrefillSpeed | None = None
    ) -> None:
        self._max_sequences = max_sequences
        self._max_tokens = max_tokens
        self._jobs: list[T] = []
        self._clock = clock
        self._speed = speed or PrefillSpeed()
        self._shares = TenantShares(clock)
        self._paused: set[int] = set()  # ids of requests

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[T]:
        """All requests. They may be removed during the iteration."""
        return iter(list(self._jobs))

    def add(self, job: T) -> list[T]:
        """Adds a job. Returns those that it supersedes, which are still there."""
        superseded = [other for other in self._jobs if is_superseded(other, job)]
        self._jobs.append(job)
        return superseded

    def remove(self, job: T) -> None:
        """Removes a job."""
        self._jobs.remove(job)

    def charge(self, job: T, work: float) -> None:
        """Counts the work of a step."""
        job.work += work
        self._shares.charge(job.request.tenant, work)

    def sort(self) -> list[T]:
        """All requests, those that should step first at the front."""
        now = self._clock()
        behind = self._shares.find_behind({job.request.tenant for job in self._jobs})
        ahead = self._shares.find_ahead()

        def rank(pair: tuple[int, T]) -> tuple[bool | int, ...]:
            will_be_late = pair[1].is_late(now + self._speed.predict_s(pair[1].num_to_prefill))
            return _rank(pair[1], pair[0], behind, ahead, will_be_late, now)

        ordered = [job for _, job in sorted(enumerate(self._jobs), key=rank)]
        self._paused = {id(job) for job in _find_paused(ordered, behind)}
        return sorted(ordered, key=lambda job: (job.request.is_prefetch, id(job) in self._paused))

    def is_stepped_with(self, job: T, first: T) -> bool:
        """Whether the job is stepped together with the one that came first in the order: its step will be longer."""
        is_prefetch = job.request.is_prefetch and not first.request.is_prefetch
        return not is_prefetch and (id(job) not in self._paused or id(first) in self._paused)

    def check_size(self, job: T) -> None:
        """Raises OverloadedError if the job is too large to run at all."""
        if job.request.num_candidates > self._max_sequences or job.num_tokens > self._max_tokens:
            raise OverloadedError(
                f"the request needs {job.request.num_candidates} sequences and room for {job.num_tokens} tokens; "
                f"this server has {self._max_sequences} (max_sequences) and {self._max_tokens} (cache_tokens)",
                "size",
            )

    def has_room(self, job: T) -> bool:
        """True if the job, which is not begun, can begin beside those that are."""
        begun = [other for other in self._jobs if other.is_begun]
        is_another = any(other.request.tenant == job.request.tenant for other in begun)
        room = _ROOM_FOR_MORE if is_another and self._shares.num_tenants > 1 else 1
        num_sequences = sum(each.request.num_candidates for each in (job, *begun))
        num_tokens = sum(each.num_tokens for each in (job, *begun))
        return num_sequences <= room * self._max_sequences and num_tokens <= room * self._max_tokens


def _find_paused(ordered: list[T], behind: set[str]) -> Iterator[T]:
    """The requests of people that wait while others of theirs, or of other tenants, are stepped."""
    by_tenant = defaultdict[str, list[T]](list)
    for job in ordered:
        if not job.request.is_prefetch:
            by_tenant[job.request.tenant].append(job)
    has_priority = any(tenant in behind and len(jobs) == 1 for tenant, jobs in by_tenant.items())
    for tenant, jobs in by_tenant.items() if len(by_tenant) > 1 else ():
        yield from jobs if has_priority and tenant not in behind and len(jobs) > 1 else jobs[1:]


def _rank(
    job: Schedulable, arrival: int, behind: set[str], ahead: set[str], will_be_late: bool, now: float
) -> tuple[bool | int, ...]:
    level = sum(job.work > limit for limit in _WORK_LEVELS)
    is_waited_for = not job.request.document or now - job.submitted_at >= _LONG_WAIT_S
    must_prefill = not is_waited_for and job.num_to_prefill > _LONG_PREFILL
    is_writing = job.is_begun and not must_prefill
    return (
        will_be_late,
        level,
        job.request.tenant in ahead,
        not is_writing,
        job.request.tenant not in behind,
        must_prefill,
        not job.is_begun,
        not is_waited_for,
        arrival if is_waited_for else -arrival,
    )


def is_superseded(older: Schedulable, newer: Schedulable) -> bool:
    """True if a newer request for the same document ends the older one."""
    own, others = older.request, newer.request
    is_same = bool(own.document) and (own.tenant, own.document) == (others.tenant, others.document)
    return is_same and (own.is_prefetch or not others.is_prefetch)


_MEMORY_S = 10.0  # work counts for about so long: after it, a third is left
_FADE_S = 1.0  # between two times at which it is counted anew
_BEHIND_FRACTION = 0.8  # of the mean of all tenants
_AHEAD_FACTOR = 2.0  # of the mean of the others
_AHEAD_WORK = 32.0  # beyond that; about ten requests
_MIN_WORK = 0.5  # less than that is forgotten


class TenantShares:
    """The work that was done for each tenant. It fades with time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._faded_at = clock()
        self._work: dict[str, float] = {}

    def charge(self, tenant: str, work: float) -> None:
        """Counts work that was done now."""
        elapsed_s = self._clock() - self._faded_at
        if elapsed_s >= _FADE_S:
            self._fade(math.exp(-elapsed_s / _MEMORY_S))
        self._work[tenant] = self._work.get(tenant, 0.0) + work

    @property
    def num_tenants(self) -> int:
        """How many are remembered."""
        return len(self._work)

    def find_behind(self, tenants: set[str]) -> set[str]:
        """Those of the tenants that got clearly less than the others."""
        least = _BEHIND_FRACTION * sum(self._work.values()) / max(len(self._work), 1)
        return {tenant for tenant in tenants if self._work.get(tenant, 0.0) < least}

    def find_ahead(self) -> set[str]:
        """Those that got far more than the others."""
        total, num_others = sum(self._work.values()), max(len(self._work) - 1, 1)
        return {
            tenant
            for tenant, work in self._work.items()
            if work > _AHEAD_WORK + _AHEAD_FACTOR * (total - work) / num_others
        }

    def _fade(self, worth: float) -> None:
        """Writes what the work is worth now, and forgets tenants that got next to nothing."""
        self._faded_at = self._clock()
        self._work = {tenant: work * worth for tenant, work in self._work.items() if work * worth >= _MIN_WORK}
