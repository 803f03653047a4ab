"""Stores of keys and values: of one sequence, and of many token strings that share their beginnings."""

from collections.abc import Sequence
from typing import Self

import torch

from inference.healing.token_tree import TokenTree
from inference.model.pytorch.planes import LayerShape, Planes, RowPlanes
from inference.model.pytorch.segment import Segment, build_tree_mask, find_row_positions


class SequenceCache:
    """The keys and values of one sequence's kept tokens, followed by those of the current step's new tokens."""

    def __init__(
        self, layers: Sequence[LayerShape], dtype: torch.dtype, device: torch.device, capacity: int = 256
    ) -> None:
        """Allocates room for `capacity` tokens. Raises OverloadedError."""
        self._planes = Planes(layers, dtype, device, capacity)
        self._device = device
        self._num_stored = 0  # branches of the last segment that were not forwarded
        self._depths = torch.empty(0, dtype=torch.long, device=device)  # the positions of its rows, with these
        self.num_tokens = 0

    def reserve(self, num_new: int) -> None:
        """Makes room for `num_new` tokens after the kept ones. Raises OverloadedError, with the cache unchanged."""
        needed = self.num_tokens + num_new
        if needed > self._planes.capacity:
            self._planes.grow(max(needed, 2 * self._planes.capacity), self.num_tokens)

    @property
    def capacity(self) -> int:
        """The number of tokens that it has room for."""
        return self._planes.capacity

    @property
    def nbytes(self) -> int:
        """The memory that it takes, with the room for further tokens."""
        return self._planes.nbytes

    def build_segment(self, tree: TokenTree, first_row: int, stored: Sequence[RowPlanes] = ()) -> Segment:
        """The segment of a forward pass over `tree`; its rows start at `first_row`. Call `reserve` first.

        `stored`: the rows of the first branches of a tree without a chain. They are written, and not forwarded.
        """
        assert not (stored and tree.chain_ids), "a chain is forwarded before all branches"
        self._num_stored = len(stored)
        if stored:
            self._planes.write_rows(self.num_tokens, stored)
        self._depths = torch.tensor(find_row_positions(tree), device=self._device) + self.num_tokens
        mask = build_tree_mask(tree, self.num_tokens, len(stored))
        num_new, depths = tree.num_rows - len(stored), self._depths[len(stored) :]
        return Segment(self, first_row, num_new, depths, None if mask is None else mask.to(self._device))

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes one layer's new rows after the kept and the stored ones; returns all keys and values."""
        start = self.num_tokens + self._num_stored
        end = start + keys.shape[1]
        stored_keys, stored_values = self._planes.find(layer)
        stored_keys[:, start:end] = keys
        stored_values[:, start:end] = values
        return stored_keys[:, :end], stored_values[:, :end]

    def find_key_positions(self, depths: torch.Tensor) -> torch.Tensor:
        """The position of each key's token in the sequence. `depths`: the positions of the new rows."""
        stored = self._depths[: self._num_stored]
        return torch.cat([torch.arange(self.num_tokens, device=depths.device), stored, depths])

    @torch.inference_mode()
    def keep(self, tree: TokenTree, node: int | None) -> None:
        """Keeps the chain of the last forwarded tree and the path to `node`; discards the other branches."""
        self.num_tokens += len(tree.chain_ids)
        path = tree.find_path(node)
        if path and path != list(range(len(path))):
            self._planes.move_rows(torch.tensor(path, device=self._device) + self.num_tokens, self.num_tokens)
        self.num_tokens += len(path)

    @torch.inference_mode()
    def copy_branches(self, tree: TokenTree) -> list[RowPlanes]:
        """The keys and values of each branch of the last forwarded tree. Call it before `keep`."""
        return self._planes.copy_rows(self.num_tokens + len(tree.chain_ids), len(tree.branch_ids))

    @torch.inference_mode()
    def copy_tokens(self, start: int) -> list[RowPlanes]:
        """The keys and values of the kept tokens from `start` on."""
        return self._planes.copy_rows(start, self.num_tokens - start)

    @torch.inference_mode()
    def append(self, rows: Sequence[RowPlanes]) -> None:
        """Keeps further tokens, whose keys and values were copied from a cache of the same model.

        Raises OverloadedError, with the cache unchanged.
        """
        if not rows:
            return
        self.reserve(len(rows))
        self._planes.write_rows(self.num_tokens, rows)
        self.num_tokens += len(rows)

    def cut(self, num_tokens: int) -> None:
        """Discards the kept tokens after the first `num_tokens`."""
        assert num_tokens <= self.num_tokens
        self.num_tokens = num_tokens

    @torch.inference_mode()
    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> Self:
        """An independent copy of the first tokens; of all if None. Has room for `capacity` tokens, or for these.

        Raises OverloadedError.
        """
        other = type(self).__new__(type(self))
        other.num_tokens = self.num_tokens if num_tokens is None else num_tokens
        other._planes = self._planes.copy(other.num_tokens, max(other.num_tokens, capacity))
        other._device, other._num_stored, other._depths = self._device, 0, self._depths[:0]
        return other


class RowStore:
    """The keys and values of many token strings that share their beginnings, one row for each token.

    The mask of a segment says which rows each of its tokens sees: those of its string. The caller chooses the rows
    for new tokens, and may reuse rows that no string needs any more.
    """

    def __init__(
        self, layers: Sequence[LayerShape], dtype: torch.dtype, device: torch.device, capacity: int = 256
    ) -> None:
        """Allocates `capacity` rows. Raises OverloadedError."""
        self._planes = Planes(layers, dtype, device, capacity)
        self._planes.zero_rows(0)  # even a masked NaN gives NaN
        self._positions = torch.zeros(capacity, dtype=torch.long, device=device)
        self._rows = torch.empty(0, dtype=torch.long, device=device)  # rows that the current segment writes
        self._num_keys = 0  # columns of the current segment's mask

    @property
    def capacity(self) -> int:
        """The number of rows."""
        return self._planes.capacity

    @torch.inference_mode()
    def grow(self, num_rows: int) -> None:
        """Increases the capacity to at least `num_rows`. Raises OverloadedError, with the store unchanged."""
        if num_rows > self.capacity:
            num_used = self.capacity
            self._planes.grow(num_rows, num_used)
            self._planes.zero_rows(num_used)
            self._positions = torch.cat([self._positions, self._positions.new_zeros(num_rows - num_used)])

    @torch.inference_mode()
    def build_segment(self, rows: Sequence[int], depths: Sequence[int], visible: torch.Tensor) -> Segment:
        """The segment of a forward pass over new tokens, which are written to `rows`. One segment at a time.

        `depths`: each new token's position in its string. `visible`: [num_new, num_keys] bool, the rows that it sees.
        """
        device = self._positions.device
        self._rows = torch.tensor(rows, device=device)
        self._num_keys = visible.shape[1]
        positions = torch.tensor(depths, device=device)
        self._positions[self._rows] = positions
        return Segment(self, 0, len(rows), positions, visible.to(device))

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes one layer's new rows; returns the keys and values of the mask's columns."""
        stored_keys, stored_values = self._planes.find(layer)
        stored_keys.index_copy_(1, self._rows, keys)
        stored_values.index_copy_(1, self._rows, values)
        return stored_keys[:, : self._num_keys], stored_values[:, : self._num_keys]

    def find_key_positions(self, depths: torch.Tensor) -> torch.Tensor:  # noqa: ARG002  # build_segment stored them
        """The position of each row's token in its string."""
        return self._positions[: self._num_keys]
