import math

import numpy as np
import pytest

from benchmarks.characters import find_distances

_SHIFT = 1e-5  # the divergence of 1/2 ± d to 1/2 is about d² / (2 ln 2)


@pytest.mark.parametrize(
    ("probabilities", "others", "distance"),
    [
        ((0.3, 0.7, 0, 0), (0, 0, 0.5, 0.5), 1),  # without a common byte
        ((1, 0), (0.5, 0.5), 0.311278**0.5),  # m = (3/4, 1/4): (log2(4/3) + log2(2/3) / 2 + log2(2) / 2) / 2
        ((0.5 + _SHIFT, 0.5 - _SHIFT), (0.5, 0.5), _SHIFT / math.sqrt(2 * math.log(2))),
        ((0.1, 0.3), (0.2, 0.6), 0),  # a common factor is no difference
    ],
)
def test_the_distance_is_the_root_of_the_divergence_to_base_two(
    probabilities: tuple[float, ...], others: tuple[float, ...], distance: float
) -> None:
    with np.errstate(divide="ignore"):
        logs = [np.log([each]) for each in (probabilities, others)]

    assert find_distances(*logs) == pytest.approx([distance], rel=1e-3, abs=1e-8)
