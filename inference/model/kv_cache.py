"""Keys and values of one sequence, and the attention that reads them beside a token tree.

The model's own code runs unchanged: it is loaded with `attn_implementation=ATTENTION_NAME`, and the
plan of a forward pass reaches `attend` as one keyword argument of the model's call.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.memory import refusing_when_full

ATTENTION_NAME = "midtoken_tree"


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What the model's attention keeps of one token."""

    num_layers: int
    num_kv_heads: int
    head_dim: int


def _purpose(num_tokens: int) -> str:
    return f"the keys and values of {num_tokens} tokens"


class SequenceCache:
    """The keys and values of one sequence's kept tokens, with room for a step's new ones behind them."""

    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: torch.device, capacity: int = 256) -> None:
        size = (shape.num_layers, 2, shape.num_kv_heads, capacity, shape.head_dim)
        with refusing_when_full(_purpose(capacity)):
            self._store = torch.empty(size, dtype=dtype, device=device)
        self.num_tokens = 0

    def reserve(self, num_new: int) -> None:
        """Makes room for `num_new` tokens behind the kept ones. Raises OverloadedError; nothing has changed then."""
        needed = self.num_tokens + num_new
        if needed <= self._store.shape[3]:
            return
        capacity = max(needed, 2 * self._store.shape[3])
        with refusing_when_full(_purpose(capacity)):
            grown = self._store.new_empty(*self._store.shape[:3], capacity, self._store.shape[4])
        grown[:, :, :, : self.num_tokens] = self._store[:, :, :, : self.num_tokens]
        self._store = grown

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Puts one layer's new rows behind the kept ones; returns all keys and all values.

        `keys`, `values`: [num_kv_heads, num_new, head_dim], device.
        """
        end = self.num_tokens + keys.shape[1]
        self._store[layer, 0, :, self.num_tokens : end] = keys
        self._store[layer, 1, :, self.num_tokens : end] = values
        return self._store[layer, 0, :, :end], self._store[layer, 1, :, :end]

    def find_key_positions(self, depths: torch.Tensor) -> torch.Tensor:
        """Where each key's token stands in the sequence, those of the new rows at `depths` included."""
        return torch.cat([torch.arange(self.num_tokens, device=depths.device), depths])

    @torch.inference_mode()
    def keep(self, tree: TokenTree, node: int | None) -> None:
        """Keeps the step's chain and the path to `node`; the other branches are forgotten."""
        self.num_tokens += len(tree.chain_ids)
        path = tree.find_path(node)
        if path and path != list(range(len(path))):
            rows = torch.tensor(path, device=self._store.device) + self.num_tokens
            self._store[:, :, :, self.num_tokens : self.num_tokens + len(path)] = self._store[:, :, :, rows]
        self.num_tokens += len(path)

    @torch.inference_mode()
    def fork(self) -> "SequenceCache":
        """A copy that changes independently. Raises OverloadedError."""
        other = SequenceCache.__new__(SequenceCache)
        with refusing_when_full(_purpose(self._store.shape[3])):
            other._store = self._store.clone()
        other.num_tokens = self.num_tokens
        return other


class RowStore:
    """The keys and values of many token strings that share their beginnings, one row for each token.

    A row is seen by the strings that its token stands in, and by no other: their masks say so. Rows that no string
    needs any more are taken again.
    """

    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: torch.device, capacity: int = 256) -> None:
        size = (shape.num_layers, 2, shape.num_kv_heads, capacity, shape.head_dim)
        with refusing_when_full(_purpose(capacity)):
            self._store = torch.zeros(size, dtype=dtype, device=device)  # zeros: a mask does not hide NaN
        self._positions = torch.zeros(capacity, dtype=torch.long, device=device)
        self._rows = torch.empty(0, dtype=torch.long, device=device)  # of the step that is being read
        self._num_keys = 0  # that the step's masks know of

    @property
    def capacity(self) -> int:
        """How many rows there are."""
        return self._store.shape[3]

    @torch.inference_mode()
    def grow(self, num_rows: int) -> None:
        """Makes room for `num_rows` in all. Raises OverloadedError; nothing has changed then."""
        if num_rows <= self.capacity:
            return
        added = num_rows - self.capacity
        with refusing_when_full(_purpose(num_rows)):
            more = self._store.new_zeros(*self._store.shape[:3], added, self._store.shape[4])
            grown = torch.cat([self._store, more], dim=3)
            positions = torch.cat([self._positions, self._positions.new_zeros(added)])
        self._store, self._positions = grown, positions

    @torch.inference_mode()
    def build_segment(self, rows: Sequence[int], depths: Sequence[int], visible: torch.Tensor) -> "Segment":
        """A forward pass over new tokens that are written to `rows`. `visible`: [num_rows, num_keys] bool."""
        self._rows = torch.tensor(rows, device=self._store.device)
        self._num_keys = visible.shape[1]
        positions = torch.tensor(depths, device=self._store.device)
        self._positions[self._rows] = positions
        return Segment(self, 0, len(rows), positions, visible.to(self._store.device))

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Puts one layer's new rows in their places; returns all keys and all values that the masks know of."""
        self._store[layer, 0].index_copy_(1, self._rows, keys)
        self._store[layer, 1].index_copy_(1, self._rows, values)
        return self._store[layer, 0, :, : self._num_keys], self._store[layer, 1, :, : self._num_keys]

    def find_key_positions(self, depths: torch.Tensor) -> torch.Tensor:  # noqa: ARG002  # they have been written
        """Where each row's token stands in its string."""
        return self._positions[: self._num_keys]


@dataclass(frozen=True, slots=True)
class Segment:
    """One sequence's rows in a forward pass."""

    cache: SequenceCache | RowStore
    first_row: int
    num_rows: int
    depths: torch.Tensor  # [num_rows] int64, device: each row's position in its sequence
    mask: torch.Tensor | None  # [num_rows, num_tokens + num_rows] bool, device; None: a lone row sees everything


def build_segment(cache: SequenceCache, tree: TokenTree, first_row: int, device: torch.device) -> Segment:
    """Where a tree's rows stand, what each may see: the kept tokens, the chain before it, its own ancestors."""
    num_chain = len(tree.chain_ids)
    positions = [*range(num_chain), *(num_chain - 1 + depth for depth in tree.find_depths())]
    depths = torch.tensor(positions, device=device) + cache.num_tokens
    if tree.num_rows == 1:
        return Segment(cache, first_row, 1, depths, None)
    fresh = torch.ones(tree.num_rows, tree.num_rows, dtype=torch.bool).tril()
    fresh[num_chain:, num_chain:] = False
    for branch in range(len(tree.branch_ids)):
        fresh[num_chain + branch, [num_chain + ancestor for ancestor in tree.iter_path(branch)]] = True
    kept = torch.ones(tree.num_rows, cache.num_tokens, dtype=torch.bool)
    return Segment(cache, first_row, tree.num_rows, depths, torch.cat([kept, fresh], dim=1).to(device))


def register_attention() -> None:
    """Makes ATTENTION_NAME known to transformers."""
    AttentionInterface.register(ATTENTION_NAME, attend)
    AttentionMaskInterface.register(ATTENTION_NAME, _no_mask)


def _no_mask(*_args: Any, **_kwargs: Any) -> None:
    """The segments carry their own masks. (transformers calls this with arguments of its own choosing.)"""


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, num_heads, num_rows, head_dim]
    key: torch.Tensor,  # [1, num_kv_heads, num_rows, head_dim]
    value: torch.Tensor,
    _attention_mask: None,
    scaling: float | None = None,
    plan: Sequence[Segment] = (),
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of every segment's rows to its own sequence. Returns [1, num_rows, num_heads, head_dim].

    The heads that share keys are laid out as further rows, so keys are never copied for them.
    """
    if softcap or s_aux is not None:
        raise ModelError("the model's attention caps its scores or has sinks, which midtoken does not do")
    num_heads, head_dim = query.shape[1], query.shape[3]
    num_kv_heads = key.shape[1]
    group = num_heads // num_kv_heads
    outputs = []
    for segment in plan:
        rows = slice(segment.first_row, segment.first_row + segment.num_rows)
        keys, values = segment.cache.write(_layer_of(module), key[0, :, rows], value[0, :, rows])
        stacked = query[0, :, rows].reshape(num_kv_heads, group * segment.num_rows, head_dim)
        mask = _within_window(segment, keys.shape[1], sliding_window)
        if mask is not None and group > 1:
            mask = mask.repeat(group, 1)
        out = scaled_dot_product_attention(stacked[None], keys[None], values[None], attn_mask=mask, scale=scaling)
        outputs.append(out.reshape(num_heads, segment.num_rows, head_dim))
    return torch.cat(outputs, dim=1).transpose(0, 1)[None], None


def _layer_of(module: torch.nn.Module) -> int:
    return int(module.layer_idx)  # type: ignore[arg-type]  # transformers sets it on every attention module


def _within_window(segment: Segment, num_keys: int, window: int | None) -> torch.Tensor | None:
    """The segment's mask, narrowed to the last `window` positions where the layer looks no further back."""
    if window is None or num_keys <= window:
        return segment.mask
    near = segment.depths[:, None] - segment.cache.find_key_positions(segment.depths)[None] < window
    return near if segment.mask is None else near & segment.mask
