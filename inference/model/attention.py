"""The attention function that transformers calls in each layer: every sequence sees only its own tokens.

A model is loaded with `attn_implementation=ATTENTION_NAME`; its code runs unchanged. One forward pass contains
the new tokens of several sequences, packed in one row. Its plan has one segment for each sequence, and is passed
to `attend` as a keyword argument of the model's call.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree

ATTENTION_NAME = "midtoken_tree"

# Arguments of attention functions in transformers that change the result and are not supported.
_UNSUPPORTED_ARGUMENTS = {
    "attention_mask": "a mask of the model's own",
    "softcap": "a soft cap on attention scores",
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "position_bias": "positions added to attention scores",
    "indices": "attention to selected tokens only",
    "block_indices": "attention to selected blocks only",
}


class KeyValueStore(Protocol):
    """Stores the keys and values of a segment."""

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the new rows of one layer; returns all keys and values that the segment's rows may see.

        `keys`, `values`: [num_kv_heads, num_new, head_dim], device.
        """
        ...

    def find_key_positions(self, depths: torch.Tensor) -> torch.Tensor:
        """The position of each key's token in its sequence. `depths`: the positions of the new rows."""
        ...


@dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one store in a forward pass."""

    store: KeyValueStore
    first_row: int
    num_rows: int
    depths: torch.Tensor  # [num_rows] int64, device: each row's position in its sequence
    mask: torch.Tensor | None  # [num_rows, num_keys] bool, device; None: every row sees every key


def find_row_positions(tree: TokenTree) -> list[int]:
    """The position of each of the tree's rows, counted from the chain's first token."""
    num_chain = len(tree.chain_ids)
    return [*range(num_chain), *(num_chain - 1 + depth for depth in tree.find_depths())]


def build_tree_mask(tree: TokenTree, num_kept: int) -> torch.Tensor | None:
    """The tokens that each row of a tree may see: the kept tokens, the chain up to the row, and the row's ancestors.

    Returns [num_rows, num_kept + num_rows] bool on the host; None for a single row, which sees everything.
    """
    if tree.num_rows == 1:
        return None
    num_chain = len(tree.chain_ids)
    new = torch.ones(tree.num_rows, tree.num_rows, dtype=torch.bool).tril()
    new[num_chain:, num_chain:] = False
    for branch in range(len(tree.branch_ids)):
        new[num_chain + branch, [num_chain + ancestor for ancestor in tree.iter_path(branch)]] = True
    return torch.cat([torch.ones(tree.num_rows, num_kept, dtype=torch.bool), new], dim=1)


def register_attention() -> None:
    """Registers ATTENTION_NAME with transformers."""
    AttentionInterface.register(ATTENTION_NAME, attend)
    AttentionMaskInterface.register(ATTENTION_NAME, _build_no_mask)


def _build_no_mask(*_args: Any, **_kwargs: Any) -> None:  # the arguments are those that transformers passes
    """Returns None: each segment has its own mask."""


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, num_heads, num_rows, head_dim], device
    key: torch.Tensor,  # [1, num_kv_heads, num_rows, head_dim], device
    value: torch.Tensor,  # as `key`
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    plan: Sequence[Segment] = (),
    sliding_window: int | None = None,
    **others: Any,  # further arguments, which differ between the model families of transformers
) -> tuple[torch.Tensor, None]:
    """Attention of each segment's rows to the keys of the segment's store. Returns [1, num_rows, num_heads, head_dim].

    Query heads that share keys are stacked as further rows, so that the keys are not copied for each head.
    Raises ModelError if the layer needs more than softmax over scaled dot products.
    """
    _check_arguments(module, plan, {"attention_mask": attention_mask, **others})
    num_heads, head_dim = query.shape[1], query.shape[3]
    num_kv_heads = key.shape[1]
    group = num_heads // num_kv_heads
    outputs = []
    for segment in plan:
        rows = slice(segment.first_row, segment.first_row + segment.num_rows)
        keys, values = segment.store.write(_find_layer(module), key[0, :, rows], value[0, :, rows])
        stacked = query[0, :, rows].reshape(num_kv_heads, group * segment.num_rows, head_dim)
        mask = _narrow_to_window(segment, keys.shape[1], sliding_window)
        if mask is not None and group > 1:
            mask = mask.repeat(group, 1)
        out = scaled_dot_product_attention(stacked[None], keys[None], values[None], attn_mask=mask, scale=scaling)
        outputs.append(out.reshape(num_heads, segment.num_rows, head_dim))
    return torch.cat(outputs, dim=1).transpose(0, 1)[None].contiguous(), None


def _check_arguments(module: torch.nn.Module, plan: Sequence[Segment], arguments: dict[str, Any]) -> None:
    layer = type(module).__name__
    for name, meaning in _UNSUPPORTED_ARGUMENTS.items():
        if arguments.get(name) is not None:
            raise ModelError(f"{layer} uses {meaning} ({name})")
    if not plan:
        raise ModelError(f"{layer} does not get the keyword arguments of the model's call")


def _find_layer(module: torch.nn.Module) -> int:
    return int(module.layer_idx)  # type: ignore[arg-type]  # transformers sets it on attention modules


def _narrow_to_window(segment: Segment, num_keys: int, window: int | None) -> torch.Tensor | None:
    """The segment's mask, without the keys that are `window` or more positions before their row."""
    if window is None or num_keys <= window:
        return segment.mask
    is_near = segment.depths[:, None] - segment.store.find_key_positions(segment.depths)[None] < window
    return is_near if segment.mask is None else is_near & segment.mask
