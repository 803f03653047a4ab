"""What the context of llama.cpp keeps of a model with a recurrent state, which cannot be cut back.

Layers such as DeltaNet, Mamba and short convolutions have one state for each sequence id, that after its last token. So
a sequence that is kept is never advanced itself:
- A pass over a chain advances a copy, which takes the sequence's place when the chain is kept.
- Each path of a tree is a copy, for the time of the pass. A token in several paths is read once for each.
- A *checkpoint* is an earlier copy that stays. What is cut back between checkpoints is read again from the one before.

Checkpoints stand where typing goes back to: at the heal point of each word, to which all keys of the word go back; far
behind the last one where the text was cut; and before the end of a long text, at ever greater distances. If a sequence
has too many, the one that saves least for its distance from the end goes.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self
from weakref import WeakKeyDictionary

from inference.errors import OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.gguf.kv_cache import Cell, CellPool, PooledCache
from inference.model.gguf.llama import BatchSpan, Llama
from inference.model.language_model import SequencePart

MIN_STATES = 16  # with fewer, there is none left for checkpoints
_PATH_SHARE = _CHECKPOINT_SHARE = _IDLE_SHARE = 4  # this part of all: for paths, one's checkpoints, idle sequences
_FIRST_DISTANCE, _DISTANCE_FACTOR = 32, 4  # tokens from the end of a text to its checkpoints


class StatePool(CellPool):
    """The cells, sequence ids and states of a context. Used by one thread, but for `released`."""

    def __init__(
        self,
        llama: Llama,
        num_cells: int,
        cell_nbytes: int,
        memory_nbytes: int = 0,
        num_states: int = MIN_STATES,
        state_nbytes: int = 0,
    ) -> None:
        """`num_states`: of the context, which has memory for them; `memory_nbytes`: for idle sequences."""
        num_own = num_states - num_states // _PATH_SHARE
        super().__init__(llama, num_cells, cell_nbytes, memory_nbytes, num_own, num_states // _IDLE_SHARE)
        self.state_nbytes = min(state_nbytes, memory_nbytes // num_states)  # all of them never count for more
        self.max_checkpoints = num_states // _CHECKPOINT_SHARE
        self._path_ids = list(range(num_own, num_states))  # in order: llama.cpp runs such sequences together
        self._caches: WeakKeyDictionary[RecurrentSequenceCache, None] = WeakKeyDictionary()  # latest used last

    def touch(self, cache: "RecurrentSequenceCache") -> None:
        """Remembers that a cache was used just now."""
        self._caches.pop(cache, None)
        self._caches[cache] = None

    def advance(self, state: "State | None", num_new: int) -> "State":
        """A copy of a state, which is read on by `num_new` tokens; an empty one for None. Raises OverloadedError."""
        advanced = State(self, self._reserve_id(), num_new + (state.num_tokens if state else 0))
        self._copy(state, advanced.sequence_id)
        return advanced

    @contextmanager
    def copying(self, state: "State | None", num_paths: int) -> Iterator[list[int]]:
        """Copies of a state for so many paths, or for fewer; perhaps none, while others have the ids."""
        ids = self._path_ids[:num_paths]
        del self._path_ids[:num_paths]
        try:
            for sequence_id in ids:
                self._copy(state, sequence_id)
            yield ids
        finally:
            for sequence_id in ids:
                self.llama.remove(sequence_id)
            self._path_ids = sorted(self._path_ids + ids)

    def _copy(self, state: "State | None", sequence_id: int) -> None:
        if state:
            self.llama.copy(state.sequence_id, sequence_id, 0, state.num_tokens)

    def _reserve_id(self) -> int:
        """If none is free, the checkpoints go of the sequences that were used longest ago."""
        for cache in list(self._caches):
            try:
                return self.reserve(0, 1)[0]
            except OverloadedError:
                cache.drop_checkpoints()
        return self.reserve(0, 1)[0]


class State:
    """A sequence id whose tokens are read. It is not changed any more."""

    def __init__(self, pool: StatePool, sequence_id: int, num_tokens: int) -> None:
        self._pool, self.sequence_id, self.num_tokens = pool, sequence_id, num_tokens
        self.cells: tuple[Cell, ...] = ()  # of its tokens, once it is kept
        self.is_checkpoint = True

    def __del__(self) -> None:
        pool, ids = self._pool, [self.sequence_id]
        pool.released.append(lambda: pool.release(0, ids))


class RecurrentSequenceCache(PooledCache):
    """The state after the cached tokens, checkpoints before it, and room for further tokens."""

    def __init__(self, pool: StatePool, room: int) -> None:
        """An empty cache with room for some tokens. Raises OverloadedError."""
        super().__init__(pool, room)
        self._pool: StatePool = pool
        self._states: list[State] = []  # the checkpoints in order, then that after the cached tokens
        self._read: list[State] = []  # those along the chain of the last pass, until it is kept
        self._wanted = 0  # where it was to be cut back last

    @property
    def num_tokens(self) -> int:
        """The number of cached tokens."""
        return self._states[-1].num_tokens if self._states else 0

    @property
    def nbytes(self) -> int:
        """The memory of its cells and states, also of those that others have as well; its share, if that is more."""
        own = self.capacity * self._pool.cell_nbytes + len(self._states) * self._pool.state_nbytes
        return max(own, self._pool.least_nbytes)

    def build_passes(self, part: SequencePart) -> Generator[list[BatchSpan], None, None]:
        """The rows of a part, after `reserve`, in passes one after the other. Raises OverloadedError."""
        assert not part.stored, "nothing beside a sequence is stored"
        self._pool.touch(self)
        chain_ids, first = part.tree.chain_ids, self.num_tokens
        state = self._states[-1] if self._states else None
        for stop in self._find_stops(part):
            start = state.num_tokens if state else 0
            state = self._pool.advance(state, stop - start)
            self._read.append(state)
            new_ids, own = chain_ids[start - first : stop - first], (state.sequence_id,)
            row = 0 if part.wants_logits and stop == first + len(chain_ids) else None
            yield [BatchSpan(new_ids[:-1], start, own), BatchSpan(new_ids[-1:], stop - 1, own, row)]
        yield from self._build_paths(part, state)

    def _find_stops(self, part: SequencePart) -> list[int]:
        """The places along the chain where a state is kept, if only as that of the end."""
        start, end, distance = self.num_tokens, self.num_tokens + len(part.tree.chain_ids), _FIRST_DISTANCE
        stops = {end} if part.tree.chain_ids else set()
        if start + distance <= self._wanted < end:
            stops.add(self._wanted)
        while part.wants_logits and 2 * distance <= end - start:
            stops.add(end - distance)
            distance *= _DISTANCE_FACTOR
        return sorted(stops)

    def _build_paths(self, part: SequencePart, state: State | None) -> Iterator[list[BatchSpan]]:
        """Passes over the paths of the tree, each over as many as there are ids for."""
        tree = part.tree
        paths = [tree.find_path(leaf) for leaf in range(len(tree.branch_ids)) if leaf not in tree.parents]
        branches = range(len(tree.branch_ids)) if part.wants_logits else ()
        rows = {branch: bool(tree.chain_ids) + branch for branch in branches}  # of those that are not read yet
        start = state.num_tokens if state else 0
        num_repeated = sum(map(len, paths)) - len(tree.branch_ids)
        self._pool.reserve(num_repeated)
        try:
            while paths:
                with self._pool.copying(state, len(paths)) as ids:
                    yield [
                        BatchSpan(tree.branch_ids[branch : branch + 1], start + depth, (own,), rows.pop(branch, None))
                        for own, path in zip(ids, paths, strict=False)
                        for depth, branch in enumerate(path)
                    ]
                del paths[: len(ids)]
        finally:
            self._pool.release(num_repeated)

    def discard(self) -> None:
        """Forgets a pass that has failed."""
        self._read = []

    def keep(self, tree: TokenTree) -> None:
        """Keeps the chain of the last forwarded tree; discards the branches."""
        if tree.chain_ids:
            self._advance()
        if self._states:
            self._states[-1].is_checkpoint |= len(tree.chain_ids) > 1 or bool(tree.branch_ids)
        while len(self._states) > self._pool.max_checkpoints + 1:
            del self._states[self._find_dispensable()]

    def _advance(self) -> None:
        """Keeps what the last pass has read. A place where only a further token was generated is no checkpoint."""
        cells = self._states[-1].cells if self._states else ()
        if self._states and not self._states[-1].is_checkpoint:
            self._states.pop()
        for state in self._read:
            cells = state.cells = (*cells, *self._take_cells(state.num_tokens - len(cells)))
        self._states += self._read
        self._states[-1].is_checkpoint = False
        self._read = []

    def _find_dispensable(self) -> int:
        """The checkpoint without which least is read again, for its distance from the end."""
        places = [0, *(state.num_tokens for state in self._states)]
        end = places[-1] + 1
        gains = [(places[at] - places[at - 1]) / (end - places[at]) for at in range(1, len(places) - 1)]
        return gains.index(min(gains))

    def drop_checkpoints(self) -> None:
        """Frees all states but the last one."""
        del self._states[:-1]

    def copy_branches(self, tree: TokenTree) -> list[None]:
        """None for each: the state after a branch is not stored."""
        return [None] * len(tree.branch_ids)

    def copy_tokens(self, start: int) -> list[None]:
        """None for each of the cached tokens from `start` on."""
        return [None] * (self.num_tokens - start)

    def append(self, stored: Sequence[Any]) -> None:
        """Nothing is stored that could be appended."""
        assert not stored, "nothing is stored"

    def cut(self, num_tokens: int) -> None:
        """Discards the cached tokens after the last checkpoint up to `num_tokens`."""
        while self.num_tokens > num_tokens:
            self._states.pop()
        self._wanted = num_tokens

    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> Self:
        """An independent copy, up to the last checkpoint up to `num_tokens` if given, with room for `capacity` tokens.

        Raises OverloadedError.
        """
        states = [each for each in self._states if num_tokens is None or each.num_tokens <= num_tokens]
        other = type(self)(self._pool, max(0, capacity - (states[-1].num_tokens if states else 0)))
        other._states = states
        return other
