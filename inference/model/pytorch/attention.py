"""The attention of one forward pass, one sequence after the other. Each row sees tokens of its own sequence."""

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from inference.model.pytorch.kv_cache import Segment
from inference.model.pytorch.transformers_hook import Reach, ScoreRule


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
        num_kept = 0 if segment.cache is None else segment.cache.num_tokens
        key_positions = np.concatenate([np.arange(num_kept), segment.positions])
        self._key_positions = torch.from_numpy(key_positions).to(device)
        self._positions = torch.from_numpy(segment.row_positions).to(device)
        self._num_before = len(key_positions) - segment.num_rows  # kept tokens and stored branches
        self._visible: torch.Tensor | None = None  # [num_rows, num_keys] bool; None: every row sees every key
        if not segment.visible.all():
            sees_kept = np.ones((segment.num_rows, num_kept), dtype=np.bool_)
            self._visible = torch.from_numpy(np.concatenate([sees_kept, segment.visible], axis=1)).to(device)

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
        cache = self.segment.cache
        return (key, value) if cache is None else cache.store(layer, self._num_before, key, value)

    def _find_mask(self, reach: Reach) -> torch.Tensor | None:
        """The segment's mask, without the keys that are out of reach of their row."""
        num_keys = len(self._key_positions)
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
