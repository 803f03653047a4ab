"""Sums of rows and of their slices, compared with fractions."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.characters.state import sum_slices
from inference.characters.token_string import Floats
from inference.model.sampler import log_sum_exp

# A float32 row: the difference to the peak is rounded by 2**-24 of itself, its exponential by a little more, and a
# term that is d below the peak weighs exp(-d), so rounding is at its worst at d = 1. Eight roundings are room enough.
_ERROR = {np.dtype(np.float32): 8 * 2.0**-24, np.dtype(np.float64): 1e-14}

_PEAKED = st.one_of(st.floats(-120, 0), st.floats(-1e-3, 0), st.sampled_from([-np.inf, 0.0, -69.0, -1000.0, -1e30]))
_rows = st.lists(_PEAKED, min_size=1, max_size=60)
_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def _sum_exactly(values: Floats) -> float:
    """Returns the logarithm of a sum of fractions, computed exactly."""
    finite = [float(value) for value in values if value > -np.inf]
    if not finite:
        return -np.inf
    peak = max(finite)
    terms = [Fraction(float(np.exp(np.longdouble(value) - np.longdouble(peak)))) for value in finite]
    return peak + float(np.log(float(sum(terms))))


def _assert_near(found: float, exact: float, dtype: type) -> None:
    """Compares masses: the difference of their logarithms is the relative error."""
    if exact == -np.inf:
        assert found == -np.inf
    else:
        assert abs(found - exact) <= _ERROR[np.dtype(dtype)] + 2**-52 * abs(exact)


@_dtypes
@given(row=_rows, cuts=st.sets(st.integers(1, 59)))
def test_a_row_and_each_slice_have_an_accurate_sum_even_beside_much_larger_ones(
    dtype: type, row: list[float], cuts: set[int]
) -> None:
    values: Floats = np.array(row, dtype)
    starts = np.array([0, *sorted(cut for cut in cuts if cut < len(row))], np.intp)

    sums = sum_slices(values, starts)

    for found, part in zip(sums, pairwise([*starts.tolist(), len(values)]), strict=True):
        _assert_near(float(found), _sum_exactly(values[slice(*part)]), dtype)
    _assert_near(log_sum_exp(values), _sum_exactly(values), dtype)
