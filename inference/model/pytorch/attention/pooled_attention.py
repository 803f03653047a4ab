"""Attention of all sequences of a pass together: for each layer one write to the pool and one call of a kernel.

All that the kernel must know of the segments is computed once for the pass, and copied to the device at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from inference.model.pytorch.attention.score_rule import ScoreRule
from inference.model.pytorch.pool.segment import Segment
from inference.model.pytorch.transfer import copy_together

_MAX_STACKED_ROWS = 64  # of one tile: rows times the query heads that share keys
_MIN_STACKED_ROWS = 16
_WORD_BITS = 64

_Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PackedPass:
    """What a kernel must know of a pass. Tensors are int64, on the device."""

    rows_per_tile: int
    max_keys: int  # of a tile
    tiles: torch.Tensor  # [num_tiles, 8]
    positions: torch.Tensor  # [num_rows]
    new_slots: torch.Tensor  # [num_rows]
    key_slots: torch.Tensor  # of all segments
    key_positions: torch.Tensor  # of all segments
    bits: torch.Tensor  # of all segments: a line of words for each row, a bit for each key that not all rows see

    @property
    def num_tiles(self) -> int:
        """How many tiles there are."""
        return len(self.tiles)


class AttentionKernel(Protocol):
    """Computes the attention of a packed pass."""

    def attend(
        self, packed: PackedPass, keys: torch.Tensor, values: torch.Tensor, query: torch.Tensor, rule: ScoreRule
    ) -> torch.Tensor:
        """Returns [num_rows, num_heads, value_dim].

        `keys`, `values`: [num_kv_heads, capacity, dim], with the keys and values of the new rows; `query`: [num_heads,
        num_rows, key_dim].
        """
        ...


class PooledAttention:
    """The attention of one forward pass over segments of one pool."""

    def __init__(self, segments: Sequence[Segment], device: torch.device, kernel: AttentionKernel, group: int) -> None:
        """`group`: the most query heads of a layer that share keys."""
        [self._planes] = {id(segment.planes): segment.planes for segment in segments}.values()
        self._packed = pack_pass(segments, device, group)
        self._kernel = kernel

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: ScoreRule
    ) -> torch.Tensor:
        """Stores one layer's new keys and values. Returns [num_rows, num_heads, value_dim]."""
        assert self._planes is not None, "segments whose keys are not stored are for trial runs"
        keys, values = self._planes.find(layer)
        keys.index_copy_(1, self._packed.new_slots, key)
        values.index_copy_(1, self._packed.new_slots, value)
        return self._kernel.attend(self._packed, keys, values, query, rule)


def pack_pass(segments: Sequence[Segment], device: torch.device, group: int) -> PackedPass:
    """The segments on the device, by one copy."""
    most_rows = max(segment.num_rows for segment in segments)
    stacked = max(_MIN_STACKED_ROWS, min(_round_up(most_rows * group), _MAX_STACKED_ROWS))
    rows_per_tile = max(1, stacked // group)
    words = [_pack_bits(segment) for segment in segments]
    tiles = _list_tiles(segments, words, rows_per_tile)
    parts = copy_together(
        [
            tiles,
            np.concatenate([segment.positions for segment in segments]),
            np.concatenate([segment.new_slots for segment in segments]),
            np.concatenate([segment.key_slots for segment in segments]),
            np.concatenate([segment.key_positions for segment in segments]),
            np.concatenate([each.ravel() for each in words]),
        ],
        device,
    )
    return PackedPass(rows_per_tile, int(tiles[:, 3].max()), parts[0].view(tiles.shape), *parts[1:])


def _list_tiles(segments: Sequence[Segment], words: Sequence[_Integers], rows_per_tile: int) -> _Integers:
    """The tiles of all segments, one line each.

    A line is: the tile's first row; the number of its rows; where the segment's keys begin; the number of keys after
    which no row of the tile sees one; the least position of its rows; how many of the first keys all rows see; where
    the words of its first row begin; the words of a row.
    """
    first_rows = accumulate((segment.num_rows for segment in segments), initial=0)
    first_keys = accumulate((len(segment.key_slots) for segment in segments), initial=0)
    first_words = accumulate((each.size for each in words), initial=0)
    lines = []
    for segment, own, row, key, word in zip(segments, words, first_rows, first_keys, first_words, strict=False):
        for start in range(0, segment.num_rows, rows_per_tile):
            rows = slice(start, min(start + rows_per_tile, segment.num_rows))
            lines.append((
                row + start,
                rows.stop - start,
                key,
                _find_end(segment, rows),
                segment.positions[rows].min(),
                segment.num_open,
                word + start * own.shape[1],
                own.shape[1],
            ))  # fmt: skip
    return np.array(lines, dtype=np.int64)


def _find_end(segment: Segment, rows: slice) -> int:
    """The number of keys after which none of the rows sees one."""
    if segment.visible is None:
        return segment.num_open
    seen = segment.visible[rows].any(axis=0).nonzero()[0]
    return segment.num_open + (int(seen[-1]) + 1 if len(seen) else 0)


def _pack_bits(segment: Segment) -> _Integers:
    """The segment's mask as [num_rows, num_words] int64, the first key in the lowest bit."""
    if segment.visible is None:
        return np.zeros((segment.num_rows, 0), dtype=np.int64)
    num_words = -(-segment.visible.shape[1] // _WORD_BITS)
    padded = np.zeros((segment.num_rows, num_words * _WORD_BITS), dtype=np.bool_)
    padded[:, : segment.visible.shape[1]] = segment.visible
    return np.packbits(padded, axis=1, bitorder="little").view("<i8").astype(np.int64, copy=False)


def _round_up(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()
