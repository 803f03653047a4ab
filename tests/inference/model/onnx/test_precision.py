import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import ModelError
from inference.model.onnx.precision import BLOCK_SIZE, Precision, quantize, read_precision


@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 100)),
    shift=st.floats(-10, 10),
    scale=st.sampled_from([0.0, 1e-30, 0.02, 5.0]),
    seed=st.integers(0, 9),
)
def test_codes_stand_for_the_weights_to_half_a_step(
    shape: tuple[int, int], shift: float, scale: float, seed: int
) -> None:
    weights = (np.random.default_rng(seed).normal(size=shape) * scale + shift).astype(np.float32)
    codes, scales, zero_points = quantize(weights)
    blocks = (codes.astype(np.float64) - zero_points[..., None]) * scales[..., None]
    decoded = blocks.reshape(shape[0], -1)
    half_steps = np.repeat(scales, BLOCK_SIZE, axis=1) / 2
    assert np.all(np.abs(decoded[:, : shape[1]] - weights) <= 1.02 * half_steps[:, : shape[1]] + 1e-30)
    assert np.all(decoded[:, shape[1] :] == 0)


def test_blocks_of_zeros_stay_zeros() -> None:
    codes, scales, zero_points = quantize(np.zeros((2, 64), np.float32))
    assert np.all((codes - zero_points[..., None]) == 0)
    assert np.all(np.isfinite(scales))


def test_other_precisions_are_refused_by_name() -> None:
    assert read_precision("int8") is Precision.INT8
    with pytest.raises(ModelError, match="run in float32 and int8, not in 'bfloat16'"):
        read_precision("bfloat16")
