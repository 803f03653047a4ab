"""The engine's heartbeat: how long ago its loop last made progress."""

from collections.abc import Callable

_ENDED_MS = 1e12  # longer than any limit; not infinity, which JSON does not have


class Heartbeat:
    """Written by the engine's thread, read by any other.

    Progress is a finished round of the loop or a request taken from the queue, however long the queue is. A loop that
    hangs in a step or has ended makes no progress.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: returns seconds."""
        self._clock = clock
        self._last_beat = clock()
        self._is_idle = False
        self._has_ended = False

    def beat(self) -> None:
        """Records that the loop has made progress and is not idle."""
        self._last_beat = self._clock()
        self._is_idle = False  # set last: a thread that reads False must not read an old time

    def mark_idle(self) -> None:
        """Records that the loop waits for a request."""
        self._is_idle = True

    def end(self) -> None:
        """Records that the loop has ended for good."""
        self._has_ended = True

    def measure_ms(self) -> float:
        """Milliseconds since the last progress; 0 while idle; longer than any limit after the end."""
        if self._has_ended:
            return _ENDED_MS
        return 0.0 if self._is_idle else 1e3 * (self._clock() - self._last_beat)
