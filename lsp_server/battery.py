"""Whether this machine runs on a battery that is low."""

import time
from collections.abc import Callable

try:
    import psutil
except (ImportError, NotImplementedError):  # an installation without the extra `local`; another system
    psutil = None

_VALID_S = 60.0  # the charge changes slowly, and the system may take milliseconds to tell


def _read_percent() -> float | None:
    """Returns the charge of the battery; None if it is not in use, or the system does not tell."""
    read = getattr(psutil, "sensors_battery", None)  # not on all systems
    battery = None if read is None else read()
    return None if battery is None or battery.power_plugged is not False else float(battery.percent)


class Battery:
    """The battery of this machine. The system is asked at most once a minute."""

    def __init__(
        self, read_percent: Callable[[], float | None] = _read_percent, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`read_percent` returns the charge; None if the machine does not run on a battery."""
        self._read_percent = read_percent
        self._now_s = now_s
        self._valid_until_s = 0.0
        self._percent: float | None = None

    def is_below(self, percent: int) -> bool:
        """True if the machine runs on a battery with less charge than this."""
        if self._now_s() >= self._valid_until_s:
            self._percent = self._read_percent()
            self._valid_until_s = self._now_s() + _VALID_S
        return self._percent is not None and self._percent < percent
