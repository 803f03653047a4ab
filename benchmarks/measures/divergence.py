"""The Jensen–Shannon distance and divergence of two distributions over the next byte."""

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.floating[Any]]  # [num_bytes, 257] natural logarithms of distributions


def find_distances(rows: Rows, others: Rows) -> npt.NDArray[np.float64]:
    """[num_bytes]: the Jensen–Shannon distance of each row to its counterpart, from 0 (equal rows) to 1.

    The distance is the square root of the divergence, here to base 2. The paper's tables have the mean distance over
    bytes and do not state the base. Distances below 1e-7 are rounding errors.
    """
    distances: npt.NDArray[np.float64] = np.sqrt(find_divergences(rows, others))
    return distances


def find_divergences(rows: Rows, others: Rows) -> npt.NDArray[np.float64]:
    """[num_bytes]: the Jensen–Shannon divergence in bits, the square of the distance.

    Rows are normalized first, so that rounding does not count as a difference. Raises ValueError if the shapes differ
    or a row is not a distribution.
    """
    if rows.shape != others.shape:
        raise ValueError(f"distributions of shapes {rows.shape} and {others.shape} have no distance")
    logs, other_logs = _normalize(rows), _normalize(others)
    middle = np.logaddexp(logs, other_logs) - np.log(2)
    nats = (_sum_relative(logs, middle) + _sum_relative(other_logs, middle)) / 2
    divergences: npt.NDArray[np.float64] = np.clip(nats / np.log(2), 0, 1)
    return divergences


def _normalize(rows: Rows) -> npt.NDArray[np.float64]:
    logs = np.asarray(rows, np.float64)
    if not np.isfinite(logs.max(axis=-1)).all():
        raise ValueError("a row is not a distribution: it holds NaN or plus infinity, or it is zero everywhere")
    normalized: npt.NDArray[np.float64] = logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True)
    return normalized


def _sum_relative(logs: npt.NDArray[np.float64], middle: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the relative entropy to `middle`, in nats. Bytes with probability zero add nothing."""
    ratios = np.subtract(logs, middle, out=np.zeros_like(logs), where=np.isfinite(logs))
    total: npt.NDArray[np.float64] = (np.exp(logs) * ratios).sum(axis=-1)
    return total
