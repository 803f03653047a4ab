"""The attention of one forward pass. Each row sees tokens of its own sequence.

`SegmentAttention` computes one segment after the other with the functions of torch, on every device and with every
type. `PooledAttention` has one write to the pool and one call of a kernel for each layer, whatever the number of
sequences. All that the kernel must know of the segments is computed once for the pass, and copied at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import scaled_dot_product_attention

from inference.model.pytorch.device import copy_together
from inference.model.pytorch.pool import Segment
from inference.model.pytorch.transformers_hook import Reach, ScoreRule

_MAX_STACKED_ROWS = 64  # of one tile: rows times the query heads that share keys
_MIN_STACKED_ROWS = 16
_WORD_BITS = 64

_Integers = npt.NDArray[np.int64]


class SegmentAttention:
    """The attention of one forward pass, segment by segment."""

    def __init__(self, segments: Sequence[Segment], device: torch.device) -> None:
        self._segments = [_DeviceSegment(segment, device) for segment in segments]

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: ScoreRule
    ) -> torch.Tensor:
        """Attention of each segment's rows to its keys. Returns [num_rows, num_heads, value_dim].

        `query`: [num_heads, num_rows, key_dim]; `key`, `value`: [num_kv_heads, num_rows, dim], of the new rows, which
        are stored first.
        """
        sizes = [each.segment.num_rows for each in self._segments]
        parts = (torch.split(states, sizes, dim=1) for states in (query, key, value))
        outputs = [each.attend(layer, *own, rule) for each, *own in zip(self._segments, *parts, strict=True)]
        return torch.cat(outputs, dim=1).transpose(0, 1).contiguous()


class _DeviceSegment:
    """A segment of a pass, with its arrays on the device."""

    def __init__(self, segment: Segment, device: torch.device) -> None:
        self.segment = segment
        arrays = segment.new_slots, segment.positions, segment.key_positions
        self._new_slots, self._positions, self._key_positions = (torch.from_numpy(each).to(device) for each in arrays)
        first = int(segment.key_slots[0])
        self._key_slots: slice | torch.Tensor = slice(first, first + len(segment.key_slots))
        if (np.diff(segment.key_slots) != 1).any():  # a slice is not copied
            self._key_slots = torch.from_numpy(segment.key_slots).to(device)
        self._visible: torch.Tensor | None = None  # [num_rows, num_keys] bool; None: every row sees every key
        if segment.visible is not None:
            is_open = np.ones((segment.num_rows, segment.num_open), dtype=np.bool_)
            self._visible = torch.from_numpy(np.concatenate([is_open, segment.visible], axis=1)).to(device)

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: ScoreRule
    ) -> torch.Tensor:
        """Returns [num_heads, num_rows, value_dim].

        Query heads that share keys are stacked as further rows, so that the keys are not copied for each head.
        """
        num_heads, num_rows, key_dim = query.shape
        group = num_heads // len(key)
        keys, values = self._store(layer, key, value)
        stacked = query.reshape(len(key), group * num_rows, key_dim)
        mask = self._find_mask(rule.reach)
        if mask is not None and group > 1:
            mask = mask.repeat(group, 1)
        if rule.softcap is None and rule.sinks is None:
            args = stacked[None], keys[None], values[None]
            out = scaled_dot_product_attention(*args, attn_mask=mask, scale=rule.scale)
        else:
            out = _attend_by_scores(stacked, keys, values, mask, rule)
        return out.reshape(num_heads, num_rows, value.shape[2])

    def _store(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the new rows of one layer; returns all keys and values that the segment's rows may see."""
        if self.segment.pool is None:
            return key, value
        keys, values = self.segment.pool.find(layer)
        keys.index_copy_(1, self._new_slots, key)
        values.index_copy_(1, self._new_slots, value)
        return keys[:, self._key_slots], values[:, self._key_slots]

    def _find_mask(self, reach: Reach) -> torch.Tensor | None:
        """The segment's mask, without the keys that are out of reach of their row."""
        num_keys = len(self.segment.key_slots)
        if reach.num_tokens is None or (reach.chunk is None and num_keys <= reach.num_tokens):
            return self._visible
        rows, keys = self._positions[:, None], self._key_positions[None]
        is_near = rows - keys < reach.num_tokens if reach.chunk is None else rows // reach.chunk == keys // reach.chunk
        return is_near if self._visible is None else is_near & self._visible


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


class Tile(IntEnum):
    """The columns of `PackedPass.tiles`. A tile is some rows of one segment, which a kernel works on together."""

    FIRST_ROW = 0
    NUM_ROWS = 1
    FIRST_KEY = 2  # of the segment, among the keys of all segments
    NUM_KEYS = 3  # after these keys of the segment, no row of the tile sees one
    LEAST_POSITION = 4  # of its rows
    NUM_OPEN = 5  # how many of the segment's first keys all rows see
    FIRST_WORD = 6  # of the mask's words of its first row
    NUM_WORDS = 7  # of a row


@dataclass(frozen=True, slots=True, eq=False)
class PackedPass:
    """What a kernel must know of a pass. Tensors are int64, on the device."""

    rows_per_tile: int
    max_keys: int  # of a tile
    tiles: torch.Tensor  # [num_tiles, len(Tile)]
    positions: torch.Tensor  # [num_rows]
    new_slots: torch.Tensor  # [num_rows]
    key_slots: torch.Tensor  # of all segments
    key_positions: torch.Tensor  # of all segments
    bits: torch.Tensor  # of all segments: a line of words for each row, a bit for each key that not all rows see


# Computes the attention of a packed pass, [num_rows, num_heads, value_dim], from
# - the keys and the values of the pool, [num_kv_heads, capacity, dim], with those of the new rows
# - the queries, [num_heads, num_rows, key_dim]
AttentionKernel = Callable[[PackedPass, torch.Tensor, torch.Tensor, torch.Tensor, ScoreRule], torch.Tensor]


class PooledAttention:
    """The attention of one forward pass over segments of one pool."""

    def __init__(self, segments: Sequence[Segment], device: torch.device, kernel: AttentionKernel, group: int) -> None:
        """`group`: the most query heads of a layer that share keys."""
        self._pool = segments[0].pool
        self._packed = pack_pass(segments, device, group)
        self._kernel = kernel

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rule: ScoreRule
    ) -> torch.Tensor:
        """Stores one layer's new keys and values. Returns [num_rows, num_heads, value_dim]."""
        assert self._pool is not None, "segments whose keys are not stored are for trial runs"
        keys, values = self._pool.find(layer)
        keys.index_copy_(1, self._packed.new_slots, key)
        values.index_copy_(1, self._packed.new_slots, value)
        return self._kernel(self._packed, keys, values, query, rule)


def pack_pass(segments: Sequence[Segment], device: torch.device, group: int) -> PackedPass:
    """The segments on the device, by one copy."""
    most_rows = max(segment.num_rows for segment in segments)
    stacked = 1 << (most_rows * group - 1).bit_length()  # the next power of two
    rows_per_tile = max(1, max(_MIN_STACKED_ROWS, min(stacked, _MAX_STACKED_ROWS)) // group)
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
    return PackedPass(rows_per_tile, int(tiles[:, Tile.NUM_KEYS].max()), *parts)


def _list_tiles(segments: Sequence[Segment], words: Sequence[_Integers], rows_per_tile: int) -> _Integers:
    """The tiles of all segments: [num_tiles, len(Tile)]."""
    first_rows = accumulate((segment.num_rows for segment in segments), initial=0)
    first_keys = accumulate((len(segment.key_slots) for segment in segments), initial=0)
    first_words = accumulate((each.size for each in words), initial=0)
    lines = []
    for segment, own, row, key, word in zip(segments, words, first_rows, first_keys, first_words, strict=False):
        for start in range(0, segment.num_rows, rows_per_tile):
            rows = slice(start, min(start + rows_per_tile, segment.num_rows))
            tile = {
                Tile.FIRST_ROW: row + start,
                Tile.NUM_ROWS: rows.stop - start,
                Tile.FIRST_KEY: key,
                Tile.NUM_KEYS: _count_seen(segment, rows),
                Tile.LEAST_POSITION: int(segment.positions[rows].min()),
                Tile.NUM_OPEN: segment.num_open,
                Tile.FIRST_WORD: word + start * own.shape[1],
                Tile.NUM_WORDS: own.shape[1],
            }
            lines.append([tile[column] for column in Tile])
    return np.array(lines, dtype=np.int64)


def _count_seen(segment: Segment, rows: slice) -> int:
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
