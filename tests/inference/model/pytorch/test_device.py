from collections.abc import Callable
from functools import partial
from typing import NoReturn

import numpy as np
import pytest
import torch

from inference.errors import OverloadedError
from inference.model.pytorch.device import copy_together, refusing_when_out_of_memory


def test_arrays_arrive_as_they_are_in_one_piece_of_memory_where_kernels_like_it() -> None:
    arrays = [np.array([1, 2, 3]), np.empty((2, 0), dtype=np.int64), np.array([[4, 5]]), np.array([6])]

    found = copy_together(arrays, torch.device("cpu"))

    assert [tensor.tolist() for tensor in found] == [array.tolist() for array in arrays]
    assert len({tensor.untyped_storage().data_ptr() for tensor in found}) == 1
    assert [8 * tensor.storage_offset() % 16 for tensor in found] == [0] * 4


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
