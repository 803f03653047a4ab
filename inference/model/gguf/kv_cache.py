"""What the context of llama.cpp keeps: the tokens of sequences, and single tokens beside them.

Each cache has a sequence id, whose cells are its cached tokens, always. A branch that is stored needs another id, since
its cell must stay when the cache goes on. Such ids are *shelves*: a shelf has at most one cell for each position,
whatever sequence it is of. So a few of them have room for hundreds of branches.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Self

from inference.errors import OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.gguf.llama import BatchSpan, Llama
from inference.model.language_model import SequencePart

_NUM_IDLE = 48  # sequences that nobody uses


class CellPool:
    """The cells and the sequence ids of a context. Used by one thread, but for `released`."""

    def __init__(
        self,
        llama: Llama,
        num_cells: int,
        cell_nbytes: int,
        memory_nbytes: int = 0,
        num_ids: int | None = None,
        num_idle: int = _NUM_IDLE,
    ) -> None:
        """`memory_nbytes`: for the sequences that nobody uses, which are `num_idle` at most, so that ids are left."""
        self.llama = llama
        self.cell_nbytes = cell_nbytes
        self.least_nbytes = memory_nbytes // num_idle  # that a sequence counts for
        self.released: deque[Callable[[], None]] = (
            deque()
        )  # from any thread: what holds cells may be collected anywhere
        self._num_free_cells = num_cells
        self._free_ids = list(range(num_ids or llama.num_ids))
        self._shelves: dict[int, set[int]] = {}  # sequence id -> positions that are taken

    def reserve(self, num_cells: int, num_ids: int = 0) -> list[int]:
        """Takes cells, and sequence ids, which are returned. Raises OverloadedError, with nothing changed."""
        while self.released:
            self.released.popleft()()
        if num_cells > self._num_free_cells:
            raise OverloadedError(
                f"there is no room left for the keys and values of {num_cells} tokens; try again in a moment"
            )
        if num_ids > len(self._free_ids):
            raise OverloadedError(f"llama.cpp has no room for {num_ids} further sequences; try again in a moment")
        self._num_free_cells -= num_cells
        return [self._free_ids.pop() for _ in range(num_ids)]

    def release(self, num_cells: int, ids: Sequence[int] = ()) -> None:
        """Gives cells and sequence ids back."""
        self._num_free_cells += num_cells
        for each in ids:
            self.llama.remove(each)
            self._free_ids.append(each)

    def store(self, source: int, start: int, cells: "Sequence[Cell]") -> "list[StoredCell | None]":
        """Holds the cells of the id `source` from a position on. None for each if no shelf has room."""
        span = range(start, start + len(cells))
        shelf = next((each for each, taken in self._shelves.items() if taken.isdisjoint(span)), None)
        if shelf is None:
            # the other ids are for caches and for the leaves of trees
            if 2 * len(self._shelves) >= self.llama.num_ids or not self._free_ids:
                return [None] * len(cells)
            shelf = self._free_ids.pop()
            self._shelves[shelf] = set()
        self.llama.copy(source, shelf, span.start, span.stop)
        self._shelves[shelf].update(span)
        return [StoredCell(self, shelf, position, cell) for position, cell in zip(span, cells, strict=True)]

    def drop(self, shelf: int, position: int) -> None:
        """Ends the hold of a stored token."""
        taken = self._shelves[shelf]
        taken.remove(position)
        self.llama.remove(shelf, position, position + 1)
        if not taken:
            del self._shelves[shelf]
            self._free_ids.append(shelf)


class Cell:
    """The room of one token, as long as something has it."""

    __slots__ = ("_pool",)

    def __init__(self, pool: CellPool) -> None:
        self._pool = pool

    def __del__(self) -> None:
        pool = self._pool
        pool.released.append(lambda: pool.release(1))


class StoredCell:
    """Holds the keys and values of one token, whatever becomes of the cache that computed them."""

    __slots__ = ("_pool", "cell", "position", "shelf")

    def __init__(self, pool: CellPool, shelf: int, position: int, cell: Cell) -> None:
        self._pool, self.shelf, self.position, self.cell = pool, shelf, position, cell

    @property
    def nbytes(self) -> int:
        """The memory that it takes, if nothing else has the cell."""
        return self._pool.cell_nbytes

    def __del__(self) -> None:
        pool, shelf, position = self._pool, self.shelf, self.position
        pool.released.append(lambda: pool.drop(shelf, position))


class PooledCache(ABC):
    """A sequence with cells for its cached tokens, and room for further ones."""

    def __init__(self, pool: CellPool, room: int, num_ids: int = 0) -> None:
        """An empty cache with room for some tokens. Raises OverloadedError."""
        self._pool, self._llama = pool, pool.llama
        self._room = 0  # after the cached tokens
        self._ids: list[int] = []  # the own one first, then those of the last pass
        self._ids = pool.reserve(room, num_ids)
        self._room = room

    def __del__(self) -> None:
        pool, room, ids = self._pool, self._room, self._ids
        pool.released.append(lambda: pool.release(room, ids))

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """The number of cached tokens."""

    @property
    def capacity(self) -> int:
        """The number of tokens that it has room for."""
        return self.num_tokens + self._room

    def reserve(self, num_new: int) -> None:
        """Makes room for `num_new` tokens after the kept ones. Raises OverloadedError, with the cache unchanged."""
        if num_new > self._room:
            self._pool.reserve(num_new - self._room)
            self._room = num_new

    def _take_cells(self, count: int) -> list[Cell]:
        """Cells of the own room."""
        self._room -= count
        return [Cell(self._pool) for _ in range(count)]


class GgufSequenceCache(PooledCache):
    """A sequence id whose cells are the cached tokens."""

    def __init__(self, pool: CellPool, room: int) -> None:
        """An empty cache with room for some tokens. Raises OverloadedError."""
        super().__init__(pool, room, num_ids=1)
        self._cells: list[Cell] = []  # of the cached tokens
        self._places: list[StoredCell | int] = []  # of the last pass's branches: stored, or a sequence id that has it

    @property
    def num_tokens(self) -> int:
        """The number of cached tokens."""
        return len(self._cells)

    @property
    def nbytes(self) -> int:
        """The memory of its cells, also of those that others have as well; its share, if that is more."""
        return max(self.capacity * self._pool.cell_nbytes, self._pool.least_nbytes)

    def build_passes(self, part: SequencePart) -> Generator[list[BatchSpan], None, None]:
        """The rows of a part in one pass, after `reserve`. Each leaf of the tree has a sequence id.

        Raises OverloadedError.
        """
        tree, num_stored = part.tree, len(part.stored)
        leaves = [branch for branch in range(num_stored, len(tree.branch_ids)) if branch not in tree.parents]
        self._ids += self._pool.reserve(0, max(len(leaves) - 1, 0))
        for each in self._ids[1:]:
            self._llama.copy(self._ids[0], each, 0, self.num_tokens)
        having: list[list[int]] = [[] for _ in tree.branch_ids]
        for leaf, sequence_id in zip(leaves, self._ids, strict=False):
            for branch in tree.iter_path(leaf):
                having[branch].append(sequence_id)
                if branch < num_stored:
                    _copy_stored(self._llama, part.stored[branch], sequence_id)
        self._places = [*part.stored, *(ids[0] for ids in having[num_stored:])]
        end, chain_ids, wants = self.num_tokens + len(tree.chain_ids), tree.chain_ids, part.wants_logits
        rows = iter(range(part.num_logit_rows))
        spans = [
            BatchSpan(chain_ids[:-1], self.num_tokens, self._ids),
            BatchSpan(chain_ids[-1:], end - 1, self._ids, next(rows) if wants and chain_ids else None),
        ]
        for branch, depth in list(enumerate(tree.find_depths()))[num_stored:]:
            ids = tree.branch_ids[branch : branch + 1]
            spans.append(BatchSpan(ids, end - 1 + depth, having[branch], next(rows, None)))
        yield spans

    def discard(self) -> None:
        """Forgets a pass that has failed, or the branches of one that is kept."""
        self._llama.remove(self._ids[0], self.num_tokens)
        self._pool.release(0, self._ids[1:])
        del self._ids[1:]
        self._places = []

    def keep(self, tree: TokenTree) -> None:
        """Keeps the chain of the last forwarded tree; discards the branches."""
        self._cells += self._take_cells(len(tree.chain_ids))
        if tree.branch_ids:
            self.discard()

    def copy_branches(self, tree: TokenTree) -> list[StoredCell | None]:
        """Holds each branch of the last forwarded tree. Call it before `keep`. None for those without room."""
        end, places = self.num_tokens + len(tree.chain_ids) - 1, zip(self._places, tree.find_depths(), strict=True)
        return [
            place if isinstance(place, StoredCell) else self._pool.store(place, end + depth, self._take_cells(1))[0]
            for place, depth in places
        ]

    def copy_tokens(self, start: int) -> list[StoredCell | None]:
        """Holds the cached tokens from `start` on. None for those without room."""
        return self._pool.store(self._ids[0], start, self._cells[start:])

    def append(self, stored: Sequence[Any]) -> None:  # of StoredCell
        """Keeps further tokens, which are in the same pool."""
        for each in stored:
            _copy_stored(self._llama, each, self._ids[0])
        self._cells += [each.cell for each in stored]

    def cut(self, num_tokens: int) -> None:
        """Discards the cached tokens after the first `num_tokens`."""
        del self._cells[num_tokens:]
        self._llama.remove(self._ids[0], self.num_tokens)

    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> Self:
        """An independent copy, of the first `num_tokens` only if given, with room for `capacity` tokens.

        Raises OverloadedError.
        """
        cells = self._cells[:num_tokens]
        other = type(self)(self._pool, max(0, capacity - len(cells)))
        self._llama.copy(self._ids[0], other._ids[0], 0, len(cells))
        other._cells = cells
        return other


def _copy_stored(llama: Llama, stored: StoredCell, sequence_id: int) -> None:
    llama.copy(stored.shelf, sequence_id, stored.position, stored.position + 1)
