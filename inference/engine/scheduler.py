"""Decides which requests step next, from their sizes, their order and the work that they took. Uses no model.

The aim is completed answers, not many begun ones. A request is worth nothing once its user has typed on. So

1. a person who waits comes before a prefetch;
2. a request that is begun comes before one that is not: it is nearer to its end. But one that has taken much work
   already gives way to those that have taken little;
3. tenants that got clearly more than their share come after the others;
4. the newest request comes first: its user has waited least, and will not type on so soon. Requests that name no
   document cannot be superseded; of these the oldest comes first;
5. a newer request for a document supersedes the older one.
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from inference.errors import OverloadedError
from inference.protocol.completion import Priority

_SLACK = 64.0  # work that a tenant may get beyond the mean of all
_WORK_LEVELS = (256.0, 1024.0)  # a request whose work exceeds one of them gives way to those below; a line never does


class Schedulable(Protocol):
    """What the scheduler must know of a request."""

    work: float  # so far; a decoded token is about one
    is_begun: bool

    @property
    def tenant(self) -> str:
        """Whose request it is."""
        ...

    @property
    def document(self) -> str:
        """What it completes; empty if that is not said."""
        ...

    @property
    def priority(self) -> Priority:
        """Who waits for it."""
        ...

    @property
    def num_sequences(self) -> int:
        """The number of its candidates, which step together."""
        ...

    @property
    def num_tokens(self) -> int:
        """The token capacity of its caches, all sequences together."""
        ...


T = TypeVar("T", bound=Schedulable)


class Scheduler(Generic[T]):
    """The requests of an engine, in the order of their arrival."""

    def __init__(self, max_sequences: int, max_tokens: int) -> None:
        self._max_sequences = max_sequences
        self._max_tokens = max_tokens
        self._requests: list[T] = []
        self._work: dict[str, float] = {}  # of the tenants with requests, counted from the idlest of them

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[T]:
        """All requests. They may be removed during the iteration."""
        return iter(list(self._requests))

    def add(self, request: T) -> T | None:
        """Adds a request. Returns the one that it supersedes, which is still there."""
        superseded = next((other for other in self._requests if _is_same_document(other, request)), None)
        if request.tenant not in self._work:
            self._work[request.tenant] = min(self._work.values(), default=0.0)
        self._requests.append(request)
        return superseded

    def remove(self, request: T) -> None:
        """Removes a request."""
        self._requests.remove(request)
        if all(other.tenant != request.tenant for other in self._requests):
            del self._work[request.tenant]

    def charge(self, request: T, work: float) -> None:
        """Counts the work of a step."""
        request.work += work
        self._work[request.tenant] += work

    def sort(self) -> list[T]:
        """All requests, those that should step first at the front."""
        limit = _SLACK + sum(self._work.values()) / max(len(self._work), 1)
        indexed = enumerate(self._requests)
        return [request for _, request in sorted(indexed, key=lambda pair: self._rank(pair[1], pair[0], limit))]

    def check_size(self, request: T) -> None:
        """Raises OverloadedError if the request is too large to run at all."""
        if request.num_sequences > self._max_sequences or request.num_tokens > self._max_tokens:
            raise OverloadedError(
                f"the request needs {request.num_sequences} sequences and room for {request.num_tokens} tokens; "
                f"this server has {self._max_sequences} (max_sequences) and {self._max_tokens} (cache_tokens)"
            )

    def has_room(self, request: T) -> bool:
        """True if the request can begin beside those that are begun."""
        begun = [other for other in self._requests if other.is_begun and other is not request]
        num_sequences = sum(other.num_sequences for other in begun) + request.num_sequences
        num_tokens = sum(other.num_tokens for other in begun) + request.num_tokens
        return num_sequences <= self._max_sequences and num_tokens <= self._max_tokens

    def _rank(self, request: T, arrival: int, share_limit: float) -> tuple[bool, int, bool, bool, bool, int]:
        level = sum(request.work > limit for limit in _WORK_LEVELS)
        is_prefetch = request.priority is Priority.PREFETCH
        is_over_share = self._work[request.tenant] > share_limit
        can_be_superseded = bool(request.document)
        order = -arrival if can_be_superseded else arrival
        return is_prefetch, level, not request.is_begun, is_over_share, can_be_superseded, order


def _is_same_document(request: Schedulable, other: Schedulable) -> bool:
    return bool(other.document) and (request.tenant, request.document) == (other.tenant, other.document)
