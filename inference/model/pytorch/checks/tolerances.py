"""How much the same logits may differ when they are computed in two ways."""

import torch

# Differences of a row of logits: root mean square, divided by the row's standard deviation. The default model has 1e-6
# in float32. Layers that must be refused had 0.007 to 1.7 in float32, with random weights.
_TOLERANCES = {torch.float64: 1e-4, torch.float32: 1e-3}
# In half precision, of three quarters of the rows: a rounding error may route some tokens to other experts. Families
# with four layers of random weights had 0.003 to 0.08.
_HALF_TOLERANCE = 0.15
MAX_NOISE = 0.3  # what rounding alone may change in half precision
_NUM_NOISES = 3  # where that is much: how many times as much is allowed
_NEIGHBOUR_SHARE = 0.1  # of the tolerance: what a neighbour may change. All families had 0


def find_differences(logits: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The difference of each row of logits, as a share of the row's spread."""
    logits, expected = logits.float(), expected.float()
    return (logits - expected).pow(2).mean(dim=-1).sqrt() / expected.std(dim=-1)


def find_difference(logits: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> float:
    """The largest difference of a row; in half precision, the largest of three quarters of the rows."""
    differences = find_differences(logits, expected)
    return (differences.max() if dtype in _TOLERANCES else differences.quantile(0.75)).item()


def find_neighbour_tolerance(dtype: torch.dtype) -> float:
    """The allowed difference of the same computation beside other neighbours."""
    return _NEIGHBOUR_SHARE * _TOLERANCES.get(dtype, _HALF_TOLERANCE)


def find_tolerance(dtype: torch.dtype) -> float:
    """The allowed difference of the same logits computed in two ways."""
    return _TOLERANCES.get(dtype, _HALF_TOLERANCE)


def find_noisy_tolerance(noise: float) -> float:
    """The allowed difference in half precision if rounding alone changes the logits by `noise`."""
    return max(_HALF_TOLERANCE, _NUM_NOISES * noise)


def is_half(dtype: torch.dtype) -> bool:
    """True for types with so few digits that a rounding error may route a token to another expert."""
    return dtype not in _TOLERANCES
