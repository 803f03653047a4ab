"""The attention of one forward pass. Each row sees tokens of its own sequence.

`SegmentAttention` computes one segment after the other with the functions of torch, on every device and with every
type. `PooledAttention` has one write to the pool and one call of a kernel for each layer, whatever the number of
sequences. All that the kernel must know of the segments is computed once for the pass, and copied at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import scaled_dot_product_attention

from inference.model.pytorch.device import copy_together
from inference.model.pytorch.pool import Segment, Slots
from inference.model.pytorch.transformers_hook import Reach, ScoreRule


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """A segment of a pass, with its arrays on the device."""

    segment: Segment
    rows: slice  # of all rows of the pass
    new_slots: torch.Tensor  # [num_rows] int64
    key_slots: torch.Tensor | slice  # [num_keys] int64; a slice if they follow each other
    visible: torch.Tensor | None  # [num_rows, num_keys] bool; None: every row sees every key
    positions: torch.Tensor  # [num_rows] int64
    key_positions: torch.Tensor  # [num_keys] int64


class SegmentAttention:
    """The attention of one forward pass, segment by segment."""

    def __init__(self, segments: Sequence[Segment], device: torch.device) -> None:
        ends = accumulate((segment.num_rows for segment in segments), initial=0)
        self._placed = [_place(segment, first, device) for segment, first in zip(segments, ends, strict=False)]

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: ScoreRule
    ) -> torch.Tensor:
        """Attention of each segment's rows to its keys. Returns [num_rows, num_heads, value_dim].

        `query`: [num_heads, num_rows, key_dim]; `key`, `value`: [num_kv_heads, num_rows, dim], of the new rows, which
        are stored first. Query heads that share keys are stacked as further rows, so that the keys are not copied for
        each head.
        """
        num_heads, num_kv_heads = query.shape[0], key.shape[0]
        group = num_heads // num_kv_heads
        outputs = []
        for placed in self._placed:
            num_rows = placed.segment.num_rows
            keys, values = _store(placed, layer, key[:, placed.rows], value[:, placed.rows])
            stacked = query[:, placed.rows].reshape(num_kv_heads, group * num_rows, query.shape[2])
            mask = _narrow(placed, rule.reach)
            if mask is not None and group > 1:
                mask = mask.repeat(group, 1)
            if rule.softcap is None and rule.sinks is None:
                args = stacked[None], keys[None], values[None]
                out = scaled_dot_product_attention(*args, attn_mask=mask, scale=rule.scale)
            else:
                out = _attend_by_scores(stacked, keys, values, mask, rule)
            outputs.append(out.reshape(num_heads, num_rows, value.shape[2]))
        return torch.cat(outputs, dim=1).transpose(0, 1).contiguous()


def _place(segment: Segment, first_row: int, device: torch.device) -> _Placed:
    rows = slice(first_row, first_row + segment.num_rows)
    new_slots, positions, key_positions = (
        torch.from_numpy(array).to(device) for array in (segment.new_slots, segment.positions, segment.key_positions)
    )
    visible = None
    if segment.visible is not None:
        is_open = np.ones((segment.num_rows, segment.num_open), dtype=np.bool_)
        visible = torch.from_numpy(np.concatenate([is_open, segment.visible], axis=1)).to(device)
    key_slots = _find_slice(segment.key_slots)
    placed_slots = torch.from_numpy(segment.key_slots).to(device) if key_slots is None else key_slots
    return _Placed(segment, rows, new_slots, placed_slots, visible, positions, key_positions)


def _find_slice(slots: Slots) -> slice | None:
    """The slots as a slice, if each follows the one before."""
    if len(slots) == 0 or (np.diff(slots) != 1).any():
        return None
    return slice(int(slots[0]), int(slots[-1]) + 1)


def _store(placed: _Placed, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Stores the new rows of one layer; returns all keys and values that the segment's rows may see."""
    if placed.segment.planes is None:
        return key, value
    found = []
    for plane, new in zip(placed.segment.planes.find(layer), (key, value), strict=True):
        plane.index_copy_(1, placed.new_slots, new)
        slots = placed.key_slots
        found.append(plane[:, slots] if isinstance(slots, slice) else plane.index_select(1, slots))
    return found[0], found[1]


def _narrow(placed: _Placed, reach: Reach) -> torch.Tensor | None:
    """The segment's mask, without the keys that are out of reach of their row."""
    num_keys = len(placed.segment.key_slots)
    if reach.num_tokens is None or (reach.chunk is None and num_keys <= reach.num_tokens):
        return placed.visible
    rows, keys = placed.positions[:, None], placed.key_positions[None]
    is_near = rows - keys < reach.num_tokens if reach.chunk is None else rows // reach.chunk == keys // reach.chunk
    return is_near if placed.visible is None else is_near & placed.visible


def _attend_by_scores(
    query: torch.Tensor,  # [num_kv_heads, group * num_rows, key_dim]
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,  # [group * num_rows, num_keys] bool
    rule: ScoreRule,
) -> torch.Tensor:
    """Attention with explicit scores, for what `scaled_dot_product_attention` cannot do."""
    scores = (query @ keys.transpose(1, 2)).float() * rule.scale
    if rule.softcap is not None:
        scores = (scores / rule.softcap).tanh() * rule.softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if rule.sinks is not None:
        num_kv_heads, num_stacked = scores.shape[:2]
        num_rows = num_stacked * num_kv_heads // len(rule.sinks)
        sinks = rule.sinks.reshape(num_kv_heads, -1).repeat_interleave(num_rows, 1)
        scores = torch.cat([scores, sinks[:, :, None].float()], dim=2)
    return scores.softmax(dim=2)[:, :, : keys.shape[1]].to(values.dtype) @ values


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
