"""The rows of one store of keys and values in a forward pass, and what each of them may see."""

from dataclasses import dataclass
from typing import Protocol

import torch

from inference.healing.token_tree import TokenTree


class KeyValueStore(Protocol):
    """Stores the keys and values of a segment."""

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the new rows of one layer; returns all keys and values that the segment's rows may see.

        `keys`: [num_kv_heads, num_new, key_dim], `values`: [num_kv_heads, num_new, value_dim], device.
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


def build_tree_mask(tree: TokenTree, num_kept: int, num_stored: int = 0) -> torch.Tensor | None:
    """The tokens that each row of a tree may see: the kept tokens, the chain up to the row, and the row's ancestors.

    The first `num_stored` rows are not forwarded, and have no line. Returns [num_new_rows, num_kept + num_rows] bool on
    the host; None for a single row, which sees everything.
    """
    if tree.num_rows == 1:
        return None
    num_chain = len(tree.chain_ids)
    new = torch.ones(tree.num_rows, tree.num_rows, dtype=torch.bool).tril()
    new[num_chain:, num_chain:] = False
    for branch in range(len(tree.branch_ids)):
        new[num_chain + branch, [num_chain + ancestor for ancestor in tree.iter_path(branch)]] = True
    return torch.cat([torch.ones(tree.num_rows, num_kept, dtype=torch.bool), new], dim=1)[num_stored:]
