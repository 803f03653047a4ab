"""The memory of a store of keys and values: rows of tokens, whatever shape each layer's keys and values have."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from inference.model.pytorch.memory import refusing_when_out_of_memory


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The shape of one token's keys and values in one layer. The layers of a model may differ."""

    num_kv_heads: int
    key_dim: int
    value_dim: int


class Planes:
    """The keys and the values of each layer: [num_kv_heads, capacity, dim] each, device.

    Those of the same shape are in one tensor, so that most models have a single tensor to grow, copy and reorder.
    """

    def __init__(self, layers: Sequence[LayerShape], dtype: torch.dtype, device: torch.device, capacity: int) -> None:
        """Allocates `capacity` rows. Raises OverloadedError."""
        self._places: list[tuple[int, int]] = []  # of keys and values in turn: number of the tensor, index in it
        sizes: Counter[tuple[int, int]] = Counter()
        numbers: dict[tuple[int, int], int] = {}
        for layer in layers:
            for dim in (layer.key_dim, layer.value_dim):
                size = (layer.num_kv_heads, dim)
                self._places.append((numbers.setdefault(size, len(numbers)), sizes[size]))
                sizes[size] += 1
        self._capacity = capacity
        with refusing_when_out_of_memory(_purpose(capacity)):
            self._tensors = [
                torch.empty((count, heads, capacity, dim), dtype=dtype, device=device)
                for (heads, dim), count in sizes.items()
            ]

    @property
    def capacity(self) -> int:
        """The number of rows."""
        return self._capacity

    def find(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and the values of one layer."""
        (key_tensor, key_index), (value_tensor, value_index) = self._places[2 * layer : 2 * layer + 2]
        return self._tensors[key_tensor][key_index], self._tensors[value_tensor][value_index]

    def grow(self, capacity: int, num_used: int) -> None:
        """Increases the capacity; the first `num_used` rows stay. Raises OverloadedError, with nothing changed."""
        with refusing_when_out_of_memory(_purpose(capacity)):
            grown = [old.new_empty(*old.shape[:2], capacity, old.shape[3]) for old in self._tensors]
        for new, old in zip(grown, self._tensors, strict=True):
            new[:, :, :num_used] = old[:, :, :num_used]
        self._tensors, self._capacity = grown, capacity

    def zero_rows(self, first: int) -> None:
        """Fills the rows from `first` on with zeros."""
        for tensor in self._tensors:
            tensor[:, :, first:] = 0

    def move_rows(self, rows: torch.Tensor, first: int) -> None:
        """Copies some rows to the place that starts at `first`. `rows`: [num_rows] int64, device."""
        for tensor in self._tensors:
            tensor[:, :, first : first + len(rows)] = tensor[:, :, rows]

    def copy_rows(self, first: int, num_rows: int) -> list["RowPlanes"]:
        """Each of some rows by itself. Rows own their memory. Raises OverloadedError."""
        rows = range(first, first + num_rows)
        with refusing_when_out_of_memory(_purpose(num_rows)):
            return [RowPlanes([tensor[:, :, row].clone() for tensor in self._tensors]) for row in rows]

    def write_rows(self, first: int, rows: Sequence["RowPlanes"]) -> None:
        """Writes rows of planes of the same shape to the place that starts at `first`."""
        for number, tensor in enumerate(self._tensors):
            tensor[:, :, first : first + len(rows)] = torch.stack([row.tensors[number] for row in rows], dim=2)

    def copy(self, num_used: int, capacity: int) -> "Planes":
        """An independent copy of the first `num_used` rows, with room for more. Raises OverloadedError."""
        other = Planes.__new__(Planes)
        other._places, other._tensors = self._places, self._tensors
        other.grow(capacity, num_used)
        return other

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return sum(tensor.nbytes for tensor in self._tensors)


@dataclass(frozen=True, slots=True)
class RowPlanes:
    """The keys and values of one row."""

    tensors: list[torch.Tensor]  # [count, num_kv_heads, dim] each, device: parts of the planes' tensors

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return sum(tensor.nbytes for tensor in self.tensors)


def _purpose(num_tokens: int) -> str:
    return f"the keys and values of {num_tokens} tokens"
