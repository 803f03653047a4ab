"""The keys and values of one sequence, in slots of a pool."""

from collections.abc import Sequence
from typing import Self

import numpy as np

from inference.healing.token_tree import TokenTree
from inference.model.pytorch.pool.segment import Segment, build_tree_mask, find_row_positions
from inference.model.pytorch.pool.token_pool import Slots, TokenPool

_NO_SLOTS: Slots = np.empty(0, dtype=np.int64)


class StoredToken:
    """Holds the keys and values of one token, whatever becomes of the cache that computed them."""

    def __init__(self, pool: TokenPool, slot: int) -> None:
        self._pool = pool
        self.slot = slot
        pool.hold(np.array([slot]))

    @property
    def nbytes(self) -> int:
        """The memory that it takes, if nothing else holds the slot."""
        return self._pool.slot_nbytes

    def __del__(self) -> None:
        self._pool.release_later(np.array([self.slot]))


class SequenceCache:
    """The slots of one sequence's kept tokens, and further ones for the new tokens of its next pass."""

    def __init__(self, pool: TokenPool, room: int = 256) -> None:
        """An empty cache with room for some tokens. Raises OverloadedError."""
        self._pool = pool
        self._kept = self._spare = _NO_SLOTS
        self._written = _NO_SLOTS  # by the last pass, in the order of the tree's rows; stored branches first
        self._spare = pool.allocate(room)  # the first of them are written by the next pass

    def __del__(self) -> None:
        self._pool.release_later(self._kept)
        self._pool.release_later(self._spare)

    @property
    def num_tokens(self) -> int:
        """The number of kept tokens."""
        return len(self._kept)

    @property
    def capacity(self) -> int:
        """The number of tokens that it has room for."""
        return len(self._kept) + len(self._spare)

    @property
    def nbytes(self) -> int:
        """The memory of its slots, also of those that others hold as well."""
        return self.capacity * self._pool.slot_nbytes

    def reserve(self, num_new: int) -> None:
        """Makes room for `num_new` tokens after the kept ones. Raises OverloadedError, with the cache unchanged."""
        num_missing = num_new - len(self._spare)
        if num_missing > 0:
            self._spare = np.concatenate([self._spare, self._pool.allocate(num_missing)])

    def build_segment(self, tree: TokenTree, stored: Sequence[StoredToken] = ()) -> Segment:
        """The segment of a forward pass over `tree`. Call `reserve` first.

        `stored`: the first branches of a tree without a chain. They are seen, and not forwarded.
        """
        assert not (stored and tree.chain_ids), "a chain is forwarded before all branches"
        new_slots = self._spare[: tree.num_rows - len(stored)]
        self._written = np.concatenate([np.array([row.slot for row in stored], dtype=np.int64), new_slots])
        positions = np.array(find_row_positions(tree)) + self.num_tokens
        return Segment(
            self._pool.planes,
            new_slots,
            positions[len(stored) :],
            np.concatenate([self._kept, self._written]),
            np.concatenate([np.arange(self.num_tokens), positions]),
            build_tree_mask(tree, len(stored)),
        )

    def keep(self, tree: TokenTree, node: int | None) -> None:
        """Keeps the chain of the last forwarded tree and the path to `node`; discards the other branches."""
        num_chain = len(tree.chain_ids)
        self._append(self._written[[*range(num_chain), *(num_chain + branch for branch in tree.find_path(node))]])
        has_others = self._pool.count_holders(self._spare) > 1  # as kept or stored tokens, which must not change
        self._pool.release(self._spare[has_others])
        self._spare = self._spare[~has_others]
        self._written = _NO_SLOTS

    def copy_branches(self, tree: TokenTree) -> list[StoredToken]:
        """The keys and values of each branch of the last forwarded tree. Call it before `keep`."""
        return [StoredToken(self._pool, int(slot)) for slot in self._written[len(tree.chain_ids) :]]

    def copy_tokens(self, start: int) -> list[StoredToken]:
        """The keys and values of the kept tokens from `start` on."""
        return [StoredToken(self._pool, int(slot)) for slot in self._kept[start:]]

    def append(self, rows: Sequence[StoredToken]) -> None:
        """Keeps further tokens, whose keys and values are in the same pool."""
        self._append(np.array([row.slot for row in rows], dtype=np.int64))

    def cut(self, num_tokens: int) -> None:
        """Discards the kept tokens after the first `num_tokens`."""
        assert num_tokens <= self.num_tokens
        self._pool.release(self._kept[num_tokens:])
        self._kept = self._kept[:num_tokens]

    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> Self:
        """A cache with the same first tokens; with all if None. It has room for `capacity` tokens, or for these.

        Raises OverloadedError.
        """
        kept = self._kept[:num_tokens]
        other = type(self)(self._pool, max(0, capacity - len(kept)))
        other._append(kept)
        return other

    def _append(self, slots: Slots) -> None:
        self._pool.hold(slots)
        self._kept = np.concatenate([self._kept, slots])
