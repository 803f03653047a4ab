import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.characters import find_distances


def _log(*probabilities: float) -> npt.NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        logs: npt.NDArray[np.float64] = np.log(np.array([probabilities]))
    return logs


def test_distributions_without_a_common_byte_have_distance_one() -> None:
    assert find_distances(_log(0.3, 0.7, 0, 0), _log(0, 0, 0.5, 0.5)) == pytest.approx([1])


def test_the_distance_is_the_root_of_the_divergence_to_base_two() -> None:
    # m = (3/4, 1/4): (log2(4/3) + log2(2/3) / 2 + log2(2) / 2) / 2
    assert find_distances(_log(1, 0), _log(0.5, 0.5)) == pytest.approx([0.311278**0.5], rel=1e-5)


def test_a_tiny_difference_is_measured_and_a_common_factor_is_none() -> None:
    shift = 1e-5  # the divergence of 1/2 ± d to 1/2 is about d² / (2 ln 2)
    near = _log(0.5 + shift, 0.5 - shift)

    assert find_distances(near, _log(0.5, 0.5)) == pytest.approx([shift / (2 * np.log(2)) ** 0.5], rel=1e-3)
    assert find_distances(near, near + 3) == pytest.approx([0], abs=1e-7)
