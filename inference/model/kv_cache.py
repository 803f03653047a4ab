"""Stores of keys and values: of one sequence, and of many token strings that share their beginnings."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from inference.healing.token_tree import TokenTree
from inference.model.attention import Segment, build_tree_mask, find_row_positions
from inference.model.memory import refusing_when_out_of_memory


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The shape of one token's keys and values in the model's attention."""

    num_layers: int
    num_kv_heads: int
    head_dim: int


class SequenceCache:
    """The keys and values of one sequence's kept tokens, followed by those of the current step's new tokens."""

    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: torch.device, capacity: int = 256) -> None:
        """Allocates room for `capacity` tokens. Raises OverloadedError."""
        size = (shape.num_layers, 2, shape.num_kv_heads, capacity, shape.head_dim)
        with refusing_when_out_of_memory(_purpose(capacity)):
            self._store = torch.empty(size, dtype=dtype, device=device)
        self.num_tokens = 0

    def reserve(self, num_new: int) -> None:
        """Makes room for `num_new` tokens after the kept ones. Raises OverloadedError, with the cache unchanged."""
        needed = self.num_tokens + num_new
        if needed <= self._store.shape[3]:
            return
        capacity = max(needed, 2 * self._store.shape[3])
        with refusing_when_out_of_memory(_purpose(capacity)):
            grown = self._store.new_empty(*self._store.shape[:3], capacity, self._store.shape[4])
        grown[:, :, :, : self.num_tokens] = self._store[:, :, :, : self.num_tokens]
        self._store = grown

    def build_segment(self, tree: TokenTree, first_row: int) -> Segment:
        """The segment of a forward pass over `tree`; its rows start at `first_row`. Call `reserve` first."""
        device = self._store.device
        depths = torch.tensor(find_row_positions(tree), device=device) + self.num_tokens
        mask = build_tree_mask(tree, self.num_tokens)
        return Segment(self, first_row, tree.num_rows, depths, None if mask is None else mask.to(device))

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes one layer's new rows after the kept ones; returns all keys and values.

        `keys`, `values`: [num_kv_heads, num_new, head_dim], device.
        """
        end = self.num_tokens + keys.shape[1]
        self._store[layer, 0, :, self.num_tokens : end] = keys
        self._store[layer, 1, :, self.num_tokens : end] = values
        return self._store[layer, 0, :, :end], self._store[layer, 1, :, :end]

    def find_key_positions(self, depths: torch.Tensor) -> torch.Tensor:
        """The position of each key's token in the sequence. `depths`: the positions of the new rows."""
        return torch.cat([torch.arange(self.num_tokens, device=depths.device), depths])

    @torch.inference_mode()
    def keep(self, tree: TokenTree, node: int | None) -> None:
        """Keeps the chain of the last forwarded tree and the path to `node`; discards the other branches."""
        self.num_tokens += len(tree.chain_ids)
        path = tree.find_path(node)
        if path and path != list(range(len(path))):
            rows = torch.tensor(path, device=self._store.device) + self.num_tokens
            self._store[:, :, :, self.num_tokens : self.num_tokens + len(path)] = self._store[:, :, :, rows]
        self.num_tokens += len(path)

    @torch.inference_mode()
    def fork(self) -> "SequenceCache":
        """An independent copy. Raises OverloadedError."""
        other = SequenceCache.__new__(SequenceCache)
        with refusing_when_out_of_memory(_purpose(self._store.shape[3])):
            other._store = self._store.clone()
        other.num_tokens = self.num_tokens
        return other


class RowStore:
    """The keys and values of many token strings that share their beginnings, one row for each token.

    The mask of a segment says which rows each of its tokens sees: those of its string. The caller chooses the rows
    for new tokens, and may reuse rows that no string needs any more.
    """

    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: torch.device, capacity: int = 256) -> None:
        """Allocates `capacity` rows. Raises OverloadedError."""
        size = (shape.num_layers, 2, shape.num_kv_heads, capacity, shape.head_dim)
        with refusing_when_out_of_memory(_purpose(capacity)):
            self._store = torch.zeros(size, dtype=dtype, device=device)  # zeros: even a masked NaN gives NaN
        self._positions = torch.zeros(capacity, dtype=torch.long, device=device)
        self._rows = torch.empty(0, dtype=torch.long, device=device)  # rows that the current segment writes
        self._num_keys = 0  # columns of the current segment's mask

    @property
    def capacity(self) -> int:
        """The number of rows."""
        return self._store.shape[3]

    @torch.inference_mode()
    def grow(self, num_rows: int) -> None:
        """Increases the capacity to at least `num_rows`. Raises OverloadedError, with the store unchanged."""
        if num_rows <= self.capacity:
            return
        num_added = num_rows - self.capacity
        with refusing_when_out_of_memory(_purpose(num_rows)):
            added = self._store.new_zeros(*self._store.shape[:3], num_added, self._store.shape[4])
            grown = torch.cat([self._store, added], dim=3)
            positions = torch.cat([self._positions, self._positions.new_zeros(num_added)])
        self._store, self._positions = grown, positions

    @torch.inference_mode()
    def build_segment(self, rows: Sequence[int], depths: Sequence[int], visible: torch.Tensor) -> Segment:
        """The segment of a forward pass over new tokens, which are written to `rows`. One segment at a time.

        `depths`: each new token's position in its string. `visible`: [num_new, num_keys] bool, the rows that it sees.
        """
        self._rows = torch.tensor(rows, device=self._store.device)
        self._num_keys = visible.shape[1]
        positions = torch.tensor(depths, device=self._store.device)
        self._positions[self._rows] = positions
        return Segment(self, 0, len(rows), positions, visible.to(self._store.device))

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes one layer's new rows; returns the keys and values of the mask's columns."""
        self._store[layer, 0].index_copy_(1, self._rows, keys)
        self._store[layer, 1].index_copy_(1, self._rows, values)
        return self._store[layer, 0, :, : self._num_keys], self._store[layer, 1, :, : self._num_keys]

    def find_key_positions(self, depths: torch.Tensor) -> torch.Tensor:  # noqa: ARG002  # build_segment stored them
        """The position of each row's token in its string."""
        return self._positions[: self._num_keys]


def _purpose(num_tokens: int) -> str:
    return f"the keys and values of {num_tokens} tokens"
