"""Percentiles of measured times."""

from collections.abc import Iterable

import numpy as np


def find_percentile(values: Iterable[float], percent: float) -> float | None:
    """Returns the value below which `percent` of the values lie; None if there are no values."""
    listed = list(values)
    return float(np.percentile(listed, percent)) if listed else None


def find_mean(values: Iterable[float]) -> float | None:
    """Returns the mean; None if there are no values."""
    listed = list(values)
    return float(np.mean(listed)) if listed else None
