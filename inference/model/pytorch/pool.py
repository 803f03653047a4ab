"""One pool of keys and values for all sequences of a model.

The keys and values of one token, in all layers, are in one *slot*. They are written once and never change. So sequences
that begin with the same tokens have the same slots, and to copy a sequence is to hold its slots once more. A slot that
nobody holds is free. A sequence's part in a forward pass is a *segment*: its new rows, and the slots that they see.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from inference.errors import OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.pytorch.device import refusing_when_out_of_memory
from inference.platforms import Self

Slots = npt.NDArray[np.int64]  # numbers of slots, each once

_NO_SLOTS: Slots = np.empty(0, dtype=np.int64)
_LEAST_CAPACITY = 256  # a pool is never made smaller


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The shape of one token's keys and values in one layer. The layers of a model may differ."""

    num_kv_heads: int
    key_dim: int
    value_dim: int


class TokenPool:
    """The slots of a model. Used by one thread, but for `release_later`.

    The keys and the values of each layer are a tensor each, a *plane*. When the pool grows or shrinks, one plane is
    copied after the other, so that old and new never lie in memory together.
    """

    def __init__(
        self,
        layers: Sequence[LayerShape],
        dtype: torch.dtype,
        device: torch.device,
        capacity: int = _LEAST_CAPACITY,
    ) -> None:
        """Allocates `capacity` slots. Raises OverloadedError."""
        sizes = [(layer.num_kv_heads, dim) for layer in layers for dim in (layer.key_dim, layer.value_dim)]
        with refusing_when_out_of_memory(f"the keys and values of {capacity} tokens"):
            self._planes = [torch.empty((heads, capacity, dim), dtype=dtype, device=device) for heads, dim in sizes]
        self.slot_nbytes = sum(heads * dim for heads, dim in sizes) * dtype.itemsize  # keys and values of a token
        self.num_holders = np.zeros(capacity, dtype=np.int32)  # of each slot
        self._released: deque[Slots] = deque()

    @property
    def capacity(self) -> int:
        """The number of slots."""
        return len(self.num_holders)

    def find(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and the values of one layer: [num_kv_heads, capacity or more, dim] each, device."""
        return self._planes[2 * layer], self._planes[2 * layer + 1]

    def allocate(self, num_slots: int) -> Slots:
        """The lowest free slots, which the caller holds from now on. Raises OverloadedError, with nothing changed."""
        while self._released:
            self.release(self._released.popleft())
        self._fit(num_slots)
        slots = np.flatnonzero(self.num_holders == 0)[:num_slots]
        self.num_holders[slots] = 1
        return slots

    @torch.inference_mode()
    def resize(self, capacity: int) -> None:
        """Changes the number of slots. Those with the highest numbers go first, and must be free.

        Raises OverloadedError: then there are no more slots, though some planes may have the memory already.
        """
        num_kept = min(capacity, self.capacity)
        self.num_holders = self.num_holders[:num_kept]
        with refusing_when_out_of_memory(f"the keys and values of {capacity} tokens"):
            for index, plane in enumerate(self._planes):
                if plane.shape[1] != capacity:
                    self._planes[index] = plane.new_empty(plane.shape[0], capacity, plane.shape[2])
                    self._planes[index][:, :num_kept] = plane[:, :num_kept]
        self.num_holders = np.concatenate([self.num_holders, np.zeros(capacity - num_kept, dtype=np.int32)])

    def hold(self, slots: Slots) -> None:
        """Holds slots once more."""
        self.num_holders[slots] += 1

    def release(self, slots: Slots) -> None:
        """Ends one hold of each slot."""
        self.num_holders[slots] -= 1

    def release_later(self, slots: Slots) -> None:
        """The same, from any thread: an object that holds slots may be collected anywhere."""
        self._released.append(slots)

    def _fit(self, num_new: int) -> None:
        """Grows if fewer slots are free. Shrinks if no more than a quarter would be used. Raises OverloadedError."""
        held = np.flatnonzero(self.num_holders)
        num_needed = len(held) + num_new
        num_used = max(num_needed, _LEAST_CAPACITY, *(held[-1:] + 1).tolist())  # held slots keep their numbers
        if num_needed > self.capacity:
            try:
                self.resize(max(2 * self.capacity, num_needed))
            except OverloadedError:
                self.resize(num_needed)
        elif 4 * num_used <= self.capacity:
            with suppress(OverloadedError):
                self.resize(2 * num_used)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The rows of one sequence in a forward pass, and what each of them may see. All arrays are on the host."""

    pool: TokenPool | None  # None: the keys and values of the rows themselves, which are not stored
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
    return Segment(None, rows, places, rows, places, TokenTree((0,) * len(positions)).build_mask())


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


class TorchSequenceCache:
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
        new_slots = self._spare[: tree.num_rows - len(stored)]
        self._written = np.concatenate([np.array([row.slot for row in stored], dtype=np.int64), new_slots])
        positions = np.array(tree.find_positions(self.num_tokens))
        return Segment(
            self._pool,
            new_slots,
            positions[len(stored) :],
            np.concatenate([self._kept, self._written]),
            np.concatenate([np.arange(self.num_tokens), positions]),
            tree.build_mask()[len(stored) :] if tree.num_rows > 1 else None,
        )

    def keep(self, tree: TokenTree) -> None:
        """Keeps the chain of the last forwarded tree; discards the branches."""
        self._append(self._written[: len(tree.chain_ids)])
        has_others = self._pool.num_holders[self._spare] > 1  # as kept or stored tokens, which must not change
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
