"""The memory of keys and values. Layers may differ in the shape of a token's keys and values."""

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
    """The keys and the values of each layer: [num_kv_heads, capacity, dim] each, device. A *slot* is one of `capacity`.

    Those of the same shape are in one tensor, so that most models have a single tensor to grow.
    """

    def __init__(self, layers: Sequence[LayerShape], dtype: torch.dtype, device: torch.device, capacity: int) -> None:
        """Allocates `capacity` slots. Raises OverloadedError."""
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
        """The number of slots."""
        return self._capacity

    @property
    def slot_nbytes(self) -> int:
        """The memory of one token's keys and values."""
        return sum(tensor[:, :, :1].numel() * tensor.element_size() for tensor in self._tensors)

    def find(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and the values of one layer."""
        (key_tensor, key_index), (value_tensor, value_index) = self._places[2 * layer : 2 * layer + 2]
        return self._tensors[key_tensor][key_index], self._tensors[value_tensor][value_index]

    @torch.inference_mode()
    def grow(self, capacity: int) -> None:
        """Increases the capacity; what is stored stays. Raises OverloadedError, with nothing changed."""
        with refusing_when_out_of_memory(_purpose(capacity)):
            grown = [old.new_empty(*old.shape[:2], capacity, old.shape[3]) for old in self._tensors]
        for new, old in zip(grown, self._tensors, strict=True):
            new[:, :, : self._capacity] = old
        self._tensors, self._capacity = grown, capacity

    @torch.inference_mode()
    def fill_zeros(self, first: int) -> None:
        """Fills the slots from `first` on with zeros."""
        for tensor in self._tensors:
            tensor[:, :, first:] = 0


def _purpose(num_tokens: int) -> str:
    return f"the keys and values of {num_tokens} tokens"
