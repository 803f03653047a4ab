"""One error for the failed allocations of all devices."""

from collections.abc import Iterator
from contextlib import contextmanager

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
