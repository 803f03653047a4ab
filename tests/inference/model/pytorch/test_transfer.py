import numpy as np
import torch

from inference.model.pytorch.device import copy_together


def test_arrays_arrive_as_they_are_and_in_one_piece_of_memory() -> None:
    arrays = [np.array([1, 2, 3]), np.empty(0, dtype=np.int64), np.array([[4, 5]])]

    found = copy_together(arrays, torch.device("cpu"))

    assert [tensor.tolist() for tensor in found] == [[1, 2, 3], [], [4, 5]]
    assert len({tensor.untyped_storage().data_ptr() for tensor in found}) == 1
