"""Copies from the host to the device."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch


def copy_to_device(array: npt.NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """The array on the device. The host does not wait for the copy."""
    host = torch.from_numpy(array)
    if device.type == "cuda":
        host = host.pin_memory()  # or the host would wait
    return host.to(device, non_blocking=True)


def copy_together(arrays: Sequence[npt.NDArray[np.int64]], device: torch.device) -> list[torch.Tensor]:
    """The arrays as tensors of one dimension on the device, by a single copy."""
    together = copy_to_device(np.concatenate([array.ravel() for array in arrays]), device)
    return list(torch.split(together, [array.size for array in arrays]))
