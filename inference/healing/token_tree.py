"""The tokens that a sequence forwards in one step: a chain of new tokens, and branches below the last one."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Comparable = TypeVar("Comparable", str, list[int], tuple[int, ...])


@dataclass(frozen=True, slots=True)
class TokenTree:
    """A chain of new token ids, and a tree of branches below its last one.

    The parent of branch `i` is branch `parents[i] < i`, or the chain's end if `parents[i]` is None.
    A node is identified by its branch index; None is the chain's end.
    """

    chain_ids: tuple[int, ...]  # if none, the branches stand below the last cached token
    branch_ids: tuple[int, ...] = ()
    parents: tuple[int | None, ...] = ()

    @property
    def num_tokens(self) -> int:
        """The number of rows in the forward pass: the chain's, then the branches'."""
        return len(self.chain_ids) + len(self.branch_ids)

    def with_chain(self, chain_ids: tuple[int, ...]) -> "TokenTree":
        """The same branches below another chain."""
        return self if chain_ids == self.chain_ids else TokenTree(chain_ids, self.branch_ids, self.parents)

    def iter_path(self, node: int | None) -> Iterator[int]:
        """The branches from `node` up to the chain's end, `node` first."""
        while node is not None:
            yield node
            node = self.parents[node]

    def find_path(self, node: int | None) -> list[int]:
        """The branches from the chain's end down to `node`."""
        return list(self.iter_path(node))[::-1]

    def spell_path(self, node: int | None) -> tuple[int, ...]:
        """The token ids from the chain's end down to `node`."""
        return tuple(self.branch_ids[branch] for branch in self.find_path(node))

    def find_depths(self) -> list[int]:
        """The depth of each branch: the number of branches on its path, including itself."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent is None else depths[parent] + 1)
        return depths

    def find_positions(self, start: int = 0) -> list[int]:
        """The position of each row, the chain's first. `start`: of the first one."""
        end = start + len(self.chain_ids)
        return [*range(start, end), *(end - 1 + depth for depth in self.find_depths())]

    def build_mask(self) -> npt.NDArray[np.bool_]:
        """[num_tokens, num_tokens]: the tokens that each token sees: the chain up to it, its ancestors, and itself."""
        num_chain = len(self.chain_ids)
        mask = np.tri(self.num_tokens, dtype=np.bool_)
        mask[num_chain:, num_chain:] = False
        for branch in range(len(self.branch_ids)):
            mask[num_chain + branch, [num_chain + ancestor for ancestor in self.iter_path(branch)]] = True
        return mask


class TreeBuilder:
    """Collects paths of token ids. Paths share the nodes of their common beginnings."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int | None, int], int] = {}  # (parent, token id) -> node, in the order of the nodes

    def add_path(self, token_ids: tuple[int, ...]) -> int | None:
        """The node at the end of the path; None for the empty path."""
        node: int | None = None
        for token_id in token_ids:
            node = self._nodes.setdefault((node, token_id), len(self._nodes))
        return node

    def build(self, chain_ids: tuple[int, ...]) -> TokenTree:
        """The tree of all added paths, below `chain_ids`."""
        branch_ids = tuple([token_id for _, token_id in self._nodes])
        return TokenTree(chain_ids, branch_ids, tuple([parent for parent, _ in self._nodes]))


def count_common(first: Comparable, second: Comparable) -> int:
    """How many of the first items of two texts, or of two token strings, are equal.

    Often one is the beginning of the other, which is quickly seen.
    """
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    return next(at for at in range(limit) if first[at] != second[at])


def find_common(sequences: Collection[tuple[int, ...]]) -> tuple[int, ...]:
    """What all begin with: what the smallest and the greatest have in common."""
    first, last = min(sequences), max(sequences)
    return first[: count_common(first, last)]
