from collections.abc import Callable

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


def _fill_the_host() -> None:
    torch.empty(1 << 50)


def _fill_the_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


def _fail_in_cublas() -> None:
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def _fill_python() -> None:
    raise MemoryError


@pytest.mark.parametrize("allocate", [_fill_the_host, _fill_the_gpu, _fail_in_cublas, _fill_python])
def test_a_failed_allocation_is_an_overloaded_error_that_names_its_purpose(allocate: Callable[[], None]) -> None:
    with (
        pytest.raises(OverloadedError, match="no memory left for the keys of 5 tokens"),
        refusing_when_out_of_memory("the keys of 5 tokens"),
    ):
        allocate()


def test_an_error_that_is_not_about_memory_passes_unchanged() -> None:
    with pytest.raises(RuntimeError, match="shape mismatch"), refusing_when_out_of_memory("nothing"):
        raise RuntimeError("shape mismatch")
