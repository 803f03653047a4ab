from collections.abc import Callable
from functools import partial
from typing import NoReturn

import pytest
import torch

from inference.errors import OverloadedError
from inference.model.pytorch.device import refusing_when_out_of_memory


def _raise(error: BaseException) -> NoReturn:
    raise error


@pytest.mark.parametrize(
    "allocate",
    [
        partial(torch.empty, 1 << 50),
        partial(_raise, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")),
        partial(_raise, RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")),
        partial(_raise, MemoryError()),
    ],
    ids=["torch on the CPU", "GPU", "cuBLAS", "Python"],
)
def test_a_failed_allocation_is_an_overloaded_error_that_names_its_purpose(allocate: Callable[[], object]) -> None:
    with (
        pytest.raises(OverloadedError, match="no memory left for the keys of 5 tokens"),
        refusing_when_out_of_memory("the keys of 5 tokens"),
    ):
        allocate()


def test_an_error_that_is_not_about_memory_passes_unchanged() -> None:
    with pytest.raises(RuntimeError, match="shape mismatch"), refusing_when_out_of_memory("nothing"):
        raise RuntimeError("shape mismatch")
