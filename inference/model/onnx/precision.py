"""The types of numbers in which a decoder's products with weights are computed."""

from enum import Enum

import numpy as np
import numpy.typing as npt

from inference.config import AUTO_DTYPE
from inference.errors import ModelError

BLOCK_SIZE = 32  # weights that share a scale
_MAX_CODE = 255


class Precision(Enum):
    """How the weights are stored. Attention, norms and sums are float32 in any case."""

    FLOAT32 = "float32"
    INT8 = "int8"  # 8 bits, a scale and a zero point for each block of a row


def read_precision(dtype: str) -> Precision:
    """The precision with this name; `auto` is float32 here. Raises ModelError."""
    if dtype == AUTO_DTYPE:
        return Precision.FLOAT32
    try:
        return Precision(dtype)
    except ValueError:
        names = " and ".join(each.value for each in Precision)
        raise ModelError(f"without torch, models are run in {names}, not in {dtype!r}") from None


def quantize(
    weights: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Weights as 8-bit codes: `weight = (code - zero point) * scale`, for each block of a row.

    `weights`: [num_outputs, num_inputs]. Returns codes [num_outputs, num_blocks, BLOCK_SIZE], scales and zero points
    [num_outputs, num_blocks]. The last block is filled up with zeros.
    """
    num_outputs, num_inputs = weights.shape
    blocks = np.zeros((num_outputs, count_blocks(num_inputs), BLOCK_SIZE), np.float32)
    blocks.reshape(num_outputs, -1)[:, :num_inputs] = weights
    low = np.minimum(blocks.min(axis=2), 0)  # zero has a code of its own
    scales = (np.maximum(blocks.max(axis=2), 0) - low) / _MAX_CODE
    scales[scales == 0] = 1
    zero_points = np.rint(-low / scales)
    codes = np.rint(blocks / scales[..., None]) + zero_points[..., None]
    return codes.clip(0, _MAX_CODE).astype(np.uint8), scales, zero_points.astype(np.uint8)


def count_blocks(num_inputs: int) -> int:
    """The number of blocks in a row of weights."""
    return -(-num_inputs // BLOCK_SIZE)
