"""How fast the model reads contexts, as measured while it does."""

_MIN_ROWS = 64  # a pass over fewer says little
_WEIGHT = 0.2  # of the latest pass


class ReadingSpeed:
    """Predicts how long a context takes to read. Before the first measurement it predicts no time at all."""

    def __init__(self) -> None:
        self._seconds_per_row: float | None = None

    def note(self, num_rows: int, seconds: float) -> None:
        """Notes a pass."""
        if num_rows < _MIN_ROWS:
            return
        latest = seconds / num_rows
        before = latest if self._seconds_per_row is None else self._seconds_per_row
        self._seconds_per_row = before + _WEIGHT * (latest - before)

    def predict_s(self, num_rows: int) -> float:
        """The seconds that so many rows take."""
        return num_rows * (self._seconds_per_row or 0.0)
