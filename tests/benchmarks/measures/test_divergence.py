import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measures.divergence import find_distances, find_divergences


def _log(*probabilities: float) -> npt.NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        logs: npt.NDArray[np.float64] = np.log(np.array([probabilities]))
    return logs


def test_distributions_without_a_common_byte_have_distance_one() -> None:
    assert find_distances(_log(0.3, 0.7, 0, 0), _log(0, 0, 0.5, 0.5)) == pytest.approx([1])


def test_the_distance_is_to_base_two() -> None:
    # m = (3/4, 1/4): (log2(4/3) + log2(2/3) / 2 + log2(2) / 2) / 2
    assert find_divergences(_log(1, 0), _log(0.5, 0.5)) == pytest.approx([0.311278])
    assert find_distances(_log(1, 0), _log(0.5, 0.5)) == pytest.approx([0.311278**0.5], rel=1e-5)


def test_a_tiny_difference_is_measured() -> None:
    # The divergence of 1/2 ± d to 1/2 is about d² / (2 ln 2).
    shift = 1e-5
    near = _log(0.5 + shift, 0.5 - shift)
    assert find_distances(near, _log(0.5, 0.5)) == pytest.approx([shift / (2 * np.log(2)) ** 0.5], rel=1e-3)


@given(st.lists(st.floats(-80, 0), min_size=16, max_size=16), st.floats(-5, 5))
def test_a_common_factor_makes_no_difference(logs: list[float], factor: float) -> None:
    row = np.array([logs], np.float32)
    assert find_distances(row, row.astype(np.float64) + factor) == pytest.approx([0], abs=1e-7)


@given(st.lists(st.floats(-80, 0), min_size=8, max_size=8), st.lists(st.floats(-80, 0), min_size=8, max_size=8))
def test_the_distance_is_symmetric(logs: list[float], others: list[float]) -> None:
    row, other = np.array([logs]), np.array([others])
    assert find_distances(row, other) == pytest.approx(find_distances(other, row), abs=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_no_distribution_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not a distribution"):
        find_distances(np.full((1, 257), bad), np.zeros((1, 257)))


def test_rows_of_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes"):
        find_distances(np.zeros((3, 257)), np.zeros((4, 257)))
