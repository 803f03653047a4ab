"""What every module here needs of a device: copies to it, and one error for its failed allocations."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch

from inference.errors import OverloadedError

# Parts of the messages of bare RuntimeErrors from torch: the CPU's allocator, cuBLAS and cuDNN.
_SIGNS = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")


@contextmanager
def refusing_when_out_of_memory(purpose: str) -> Iterator[None]:
    """Inside the context, a failed allocation raises OverloadedError, with `purpose` in its message."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OverloadedError(f"the device has no memory left for {purpose}; try again in a moment") from error


def is_out_of_memory(error: Exception) -> bool:
    """True if `error` reports a failed allocation."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(sign in str(error) for sign in _SIGNS)


def copy_together(arrays: Sequence[npt.NDArray[np.int64]], device: torch.device) -> list[torch.Tensor]:
    """The arrays on the device, by a single copy, for which the host does not wait.

    Each begins at a multiple of 16 bytes: a kernel is compiled once more for pointers that do not.
    """
    padded = [np.append(array, np.zeros(array.size % 2, dtype=np.int64)) for array in arrays]
    host = torch.from_numpy(np.concatenate(padded))
    if device.type == "cuda":
        host = host.pin_memory()  # or the host would wait
    parts = torch.split(host.to(device, non_blocking=True), [each.size for each in padded])
    return [part[: array.size].view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def can_run_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernels of the Triton language run there. They have no products of float64."""
    return device.type == "cuda" and dtype != torch.float64  # for torch, ROCm is cuda too
