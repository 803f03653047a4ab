"""Which requests a model takes. One user who sends a lot does not keep the others out."""

import threading
from collections import Counter

from inference.errors import OverloadedError


class Admission:
    """The number of requests that are here, by tenant. Thread-safe."""

    def __init__(self, max_running: int, max_waiting: int) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()

    def enter(self, tenant: str, is_prefetch: bool = False) -> None:
        """Takes a request. Raises OverloadedError if there are as many as can run and wait.

        But a tenant with fewer than an equal share of them may enter even then. A prefetch never waits.
        """
        max_waiting, reason = (0, "prefetch") if is_prefetch else (self._max_waiting, "queue")
        limit = self._max_running + max_waiting
        with self._lock:
            share = 0 if is_prefetch else limit // len({*self._numbers, tenant})
            if self._numbers.total() >= limit and self._numbers[tenant] >= share:
                problem = "a prefetch does not wait" if is_prefetch else f"{max_waiting} requests wait already"
                raise OverloadedError(f"{problem}; try again in a moment", reason)
            self._numbers[tenant] += 1

    def leave(self, tenant: str) -> None:
        """A request has ended."""
        with self._lock:
            self._numbers[tenant] -= 1
            if not self._numbers[tenant]:
                del self._numbers[tenant]
