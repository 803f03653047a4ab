"""The keys and values of one sequence, on the device, and the sequence's part in a forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from inference.healing.token_tree import TokenTree
from inference.model.pytorch.device import refusing_when_out_of_memory

TokenKV = torch.Tensor  # [size], device: one token's keys and values in all layers


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The shape of one token's keys and values in one layer. The layers of a model may differ."""

    num_kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def dims(self) -> tuple[int, int]:
        """The numbers of a key and of a value."""
        return self.key_dim, self.value_dim


class TorchSequenceCache:
    """The keys and values of the kept tokens, followed by those of the last forwarded tree's chain and branches."""

    def __init__(self, planes: Sequence[torch.Tensor], num_tokens: int, capacity: int) -> None:
        """A copy of the first `num_tokens` of some planes, with room for `capacity`. Raises OverloadedError.

        A plane is the keys or the values of one layer, [num_kv_heads, capacity, dim].
        """
        self._planes = _copy_planes(planes, num_tokens, capacity)
        self.num_tokens = num_tokens

    @property
    def capacity(self) -> int:
        """The number of tokens that it has room for."""
        return self._planes[0].shape[1]

    @property
    def nbytes(self) -> int:
        """The memory of the keys and values."""
        return sum(plane.nbytes for plane in self._planes)

    def reserve(self, num_new: int) -> None:
        """Makes room for `num_new` rows after the kept ones. Raises OverloadedError, with the cache unchanged."""
        needed = self.num_tokens + num_new
        if needed > self.capacity:
            self._planes = _copy_planes(self._planes, self.num_tokens, needed + needed // 2)

    def build_segment(self, tree: TokenTree, stored: Sequence[TokenKV] = ()) -> "Segment":
        """The segment of a forward pass over `tree`. Call `reserve` first.

        `stored`: the first branches of a tree without a chain. They are seen, and not forwarded.
        """
        self._write_rows(stored)
        positions = np.array(tree.find_positions(self.num_tokens))
        return Segment(self, positions, tree.build_mask()[len(stored) :])

    def store(
        self, layer: int, num_before: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes one layer's keys and values of new rows. Returns those of all rows up to the last new one."""
        stop = num_before + key.shape[1]
        keys, values = self._planes[2 * layer : 2 * layer + 2]
        keys[:, num_before:stop], values[:, num_before:stop] = key, value
        return keys[:, :stop], values[:, :stop]

    def keep(self, tree: TokenTree) -> None:
        """Keeps the chain of the last forwarded tree; discards the branches."""
        self.num_tokens += len(tree.chain_ids)

    def copy_branches(self, tree: TokenTree) -> list[TokenKV]:
        """Copies of the keys and values of the last forwarded tree's branches. Call this before `keep`."""
        first = self.num_tokens + len(tree.chain_ids)
        return self._copy_rows(first, first + len(tree.branch_ids))

    def copy_tokens(self, start: int) -> list[TokenKV]:
        """Copies of the keys and values of the kept tokens from `start` on."""
        return self._copy_rows(start, self.num_tokens)

    def append(self, rows: Sequence[TokenKV]) -> None:
        """Keeps stored rows as further tokens. Raises OverloadedError, with the cache unchanged."""
        self.reserve(len(rows))
        self._write_rows(rows)
        self.num_tokens += len(rows)

    def cut(self, num_tokens: int) -> None:
        """Discards the kept tokens after the first `num_tokens`."""
        self.num_tokens = min(self.num_tokens, num_tokens)

    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> Self:
        """An independent copy, of the first `num_tokens` only if given, with room for `capacity` tokens.

        Raises OverloadedError.
        """
        num_kept = self.num_tokens if num_tokens is None else min(num_tokens, self.num_tokens)
        return type(self)(self._planes, num_kept, max(num_kept, capacity))

    @torch.inference_mode()
    def _copy_rows(self, start: int, stop: int) -> list[TokenKV]:
        with refusing_when_out_of_memory(f"the keys and values of {stop - start} tokens"):
            rows = torch.cat([plane[:, start:stop].transpose(0, 1).flatten(1) for plane in self._planes], dim=1)
            return [row.clone() for row in rows]

    @torch.inference_mode()
    def _write_rows(self, rows: Sequence[TokenKV]) -> None:
        """Writes rows after the kept tokens, without keeping them."""
        if not rows:
            return
        sizes = [plane.shape[0] * plane.shape[2] for plane in self._planes]
        own = slice(self.num_tokens, self.num_tokens + len(rows))
        for plane, states in zip(self._planes, torch.split(torch.stack(list(rows)), sizes, dim=1), strict=True):
            plane[:, own] = states.reshape(len(rows), plane.shape[0], plane.shape[2]).transpose(0, 1)


@torch.inference_mode()
def _copy_planes(planes: Sequence[torch.Tensor], num_tokens: int, capacity: int) -> list[torch.Tensor]:
    """Planes with room for `capacity` tokens, and copies of the first. Raises OverloadedError."""
    with refusing_when_out_of_memory(f"the keys and values of {capacity} tokens"):
        copies = [plane.new_empty(plane.shape[0], capacity, plane.shape[2]) for plane in planes]
        for copy, plane in zip(copies, planes, strict=True):
            copy[:, :num_tokens] = plane[:, :num_tokens]
    return copies


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The rows of one sequence in a forward pass, and what they see: all kept tokens, and some rows of the tree."""

    cache: TorchSequenceCache | None  # None: the keys and values of the rows are not stored
    positions: npt.NDArray[np.int64]  # [num_tree_rows], of the stored branches, which are not forwarded, and the rows
    visible: npt.NDArray[np.bool_]  # [num_rows, num_tree_rows]: which rows of the tree each row sees

    @property
    def num_rows(self) -> int:
        """The number of tokens that are forwarded."""
        return len(self.visible)

    @property
    def row_positions(self) -> npt.NDArray[np.int64]:
        """[num_rows]: each row's position in its sequence."""
        return self.positions[len(self.positions) - self.num_rows :]


def build_lone_segment(positions: Sequence[int]) -> Segment:
    """A segment of tokens at `positions`, each of which sees those before it. Their keys are not stored."""
    return Segment(None, np.array(positions), TokenTree((0,) * len(positions)).build_mask())
