"""How long a context takes to prefill."""

_STEP_S = 1.0  # that a step should take at most: a key that comes meanwhile waits for its end
_MIN_ROWS, _MAX_ROWS = 16, 512  # of a step. A pass over fewer takes nearly as long, and says little of the speed
_PREFETCH_STEPS = 8  # instead of one
_SHARED_STEP_S = 0.03  # that a step should take while other people wait: most of them need less than that in all
_EQUAL_ROWS = 64  # a pass over so many counts as much as all before


class PrefillSpeed:
    """Predicts how long a context takes to prefill. Before the first measurement it predicts no time at all.

    Small passes take more time for each row. So they count for less.
    """

    def __init__(self) -> None:
        self._seconds_per_row: float | None = None

    def note(self, num_rows: int, seconds: float) -> None:
        """Notes a pass."""
        if num_rows < _MIN_ROWS:
            return
        latest = seconds / num_rows
        before = latest if self._seconds_per_row is None else self._seconds_per_row
        self._seconds_per_row = before + (latest - before) * num_rows / (num_rows + _EQUAL_ROWS)

    def predict_s(self, num_rows: int) -> float:
        """The seconds that so many rows take."""
        return num_rows * (self._seconds_per_row or 0.0)

    def find_max_rows(self, is_prefetch: bool = False, is_shared: bool = False) -> int:
        """The most rows of a context that one step should forward. A key must not wait long for a prefetch's step.

        `is_shared`: other people wait; then a person's step is short, too.
        """
        if self._seconds_per_row is None:
            return _MIN_ROWS
        step_s = _SHARED_STEP_S if is_shared and not is_prefetch else _STEP_S
        num_rows = int(min(step_s / max(self._seconds_per_row, 1e-9), _MAX_ROWS))
        return max(num_rows // _PREFETCH_STEPS if is_prefetch else num_rows, _MIN_ROWS)
