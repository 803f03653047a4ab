"""How long ago the worker of a model made progress."""

import math
from collections.abc import Callable

_LONG_STEP_S = 10.0
_FADING = 0.99  # of the longest step, with each later one
_ENDED_MS = 1e12  # longer than any limit; not infinity, which JSON does not have


class Heartbeat:
    """Written by the thread of a model's worker, read by any other.

    Progress is a finished round of the loop or a request taken from the queue, however long the queue is. A loop that
    hangs in a step or has ended makes no progress. If a large model has long steps, time is scaled down accordingly, so
    that one limit is right for every model.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: returns seconds."""
        self._clock = clock
        self._last_beat: float | None = clock()  # None while idle
        self._longest_s = _LONG_STEP_S  # of the latest steps

    def beat(self) -> None:
        """Records that the loop has made progress and is not idle."""
        now, last_beat = self._clock(), self._last_beat
        latest = 0.0 if last_beat is None else now - last_beat
        self._longest_s = max(latest, _FADING * self._longest_s, _LONG_STEP_S)
        self._last_beat = now

    def mark_idle(self) -> None:
        """Records that the loop waits for a request."""
        self._last_beat = None

    def end(self) -> None:
        """Records that the loop has ended for good."""
        self._last_beat = -math.inf

    def measure_ms(self) -> float:
        """Milliseconds since the last progress, fewer if steps are long; 0 while idle; huge after the end."""
        last_beat = self._last_beat  # once: the worker's thread may change it
        if last_beat is None:
            return 0.0
        return min(1e3 * (self._clock() - last_beat) * _LONG_STEP_S / self._longest_s, _ENDED_MS)
