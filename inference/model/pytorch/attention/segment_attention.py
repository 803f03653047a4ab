"""Attention of one segment after the other, with the functions of torch. It runs on every device, with every type."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from inference.model.pytorch.attention.reach import Reach
from inference.model.pytorch.attention.score_rule import ScoreRule
from inference.model.pytorch.pool.segment import Segment
from inference.model.pytorch.pool.token_pool import Slots


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
