"""The rows of one store of keys and values in a forward pass, and what each of them may see."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference.healing.token_tree import TokenTree
from inference.model.pytorch.pool.planes import Planes
from inference.model.pytorch.pool.token_pool import Slots


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The rows of one store in a forward pass. All arrays are on the host."""

    planes: Planes | None  # None: the keys and values of the rows themselves, which are not stored
    new_slots: Slots  # [num_rows]: where the rows' own keys and values are written
    positions: npt.NDArray[np.int64]  # [num_rows]: each row's position in its sequence
    key_slots: Slots  # [num_keys]: the keys that the rows may see, in this order; their own are among them
    key_positions: npt.NDArray[np.int64]  # [num_keys]
    # [num_rows, num_last] bool: which of the last keys each row sees. All rows see the keys before. None: all keys.
    visible: npt.NDArray[np.bool_] | None

    @property
    def num_rows(self) -> int:
        """The number of tokens that are forwarded."""
        return len(self.positions)

    @property
    def num_open(self) -> int:
        """How many of the first keys all rows see."""
        return len(self.key_slots) - (0 if self.visible is None else self.visible.shape[1])


def build_lone_segment(positions: Sequence[int]) -> Segment:
    """A segment of tokens at `positions`, each of which sees those before it. Their keys are not stored."""
    rows, places = np.arange(len(positions)), np.array(positions)
    return Segment(None, rows, places, rows, places, build_tree_mask(TokenTree((0,) * len(positions))))


def find_row_positions(tree: TokenTree) -> list[int]:
    """The position of each of the tree's rows, counted from the chain's first token."""
    num_chain = len(tree.chain_ids)
    return [*range(num_chain), *(num_chain - 1 + depth for depth in tree.find_depths())]


def build_tree_mask(tree: TokenTree, num_stored: int = 0) -> npt.NDArray[np.bool_] | None:
    """The rows of a tree that each row may see: the chain up to the row, and the row's ancestors.

    The first `num_stored` rows are not forwarded, and have no line. Returns [num_new_rows, num_rows] bool; None for a
    single row, which sees everything.
    """
    if tree.num_rows == 1:
        return None
    num_chain = len(tree.chain_ids)
    visible = np.tri(tree.num_rows, dtype=np.bool_)
    visible[num_chain:, num_chain:] = False
    for branch in range(len(tree.branch_ids)):
        visible[num_chain + branch, [num_chain + ancestor for ancestor in tree.iter_path(branch)]] = True
    return visible[num_stored:]
