"""The engine's sign of life: how long ago its loop last made progress."""

from collections.abc import Callable

_ENDED_MS = 1e12  # longer than any limit; not infinity, which JSON does not have


class Heartbeat:
    """Written by the engine's thread, read by any other.

    Progress is a finished step or a finished round of the loop, however long the queue is. A loop that hangs in a step
    does not beat, and neither does one that has ended.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._last_beat = clock()
        self._is_idle = False
        self._has_ended = False

    def beat(self) -> None:
        """The loop has made progress, and has more to do."""
        self._last_beat = self._clock()
        self._is_idle = False  # after the time: a reader who sees False must not see an old time

    def mark_idle(self) -> None:
        """The loop has nothing to do until something comes in."""
        self._is_idle = True

    def end(self) -> None:
        """The loop has ended, and will never beat again."""
        self._has_ended = True

    def measure_ms(self) -> float:
        """Milliseconds since the last progress; 0 while there is nothing to do; longer than any limit after the end."""
        if self._has_ended:
            return _ENDED_MS
        return 0.0 if self._is_idle else 1e3 * (self._clock() - self._last_beat)
