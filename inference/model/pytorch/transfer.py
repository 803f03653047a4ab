"""Copies from the host to the device."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch


def copy_together(arrays: Sequence[npt.NDArray[np.int64]], device: torch.device) -> list[torch.Tensor]:
    """The arrays as tensors of one dimension on the device, by a single copy."""
    together = torch.from_numpy(np.concatenate([array.ravel() for array in arrays])).to(device)
    return list(torch.split(together, [array.size for array in arrays]))
