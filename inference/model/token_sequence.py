"""A prefilled token sequence, with cached logits, keys and values of tokens that branch off it.

The cache has the keys and values of the sequence itself. Beside it stand *nodes*: tokens that were forwarded at some
place of the sequence or below it, with the logits after them. They are branches of a covering tree, generated tokens,
drafts. A node is named by the tokens from the *anchor* to itself. So whatever is needed later is found by what it
contains: a word that closes is already a node, and so is the text that was generated before, if the user types it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inference.healing.token_tree import TokenTree, count_common
from inference.model.language_model import SequenceCache, SequencePart, TokenKV
from inference.model.sampler import LogitRow

_MAX_NODES = 96  # a covering tree, a completed line and the trees of some keys before; each has a row of logits
_MAX_ANCHOR_DISTANCE = 128  # tokens between anchor and end; beyond, the anchor moves
_MIN_ANCHOR_DISTANCE = 32  # tokens that stay between them then; text that was cut back further is prefilled again


@dataclass(slots=True)
class _Node:
    """What is known of one node."""

    row: LogitRow | None = None
    stored: TokenKV | None = None  # None: its keys and values are in the cache only, or were not kept

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return (0 if self.row is None else self.row.nbytes) + (0 if self.stored is None else self.stored.nbytes)


class TokenSequence:
    """Tokens in a cache, and the nodes beside them. `token_ids` and the cache always agree."""

    def __init__(self, cache: SequenceCache) -> None:
        """`cache`: an empty one."""
        self.cache = cache
        self.room = cache.capacity  # for the tokens of the request that uses it, and for those of its copies
        self.token_ids: list[int] = []
        self._num_before = 0  # tokens before the anchor
        self._nodes: dict[tuple[int, ...], _Node] = {}  # least recently used first

    @property
    def num_tokens(self) -> int:
        """The number of tokens in the cache."""
        return len(self.token_ids)

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self.cache.nbytes + sum(node.nbytes for node in self._nodes.values())

    def count_common(self, token_ids: list[int]) -> int:
        """How many of the first tokens are equal."""
        return count_common(self.token_ids, token_ids)

    def reuse(self, context_ids: Sequence[int]) -> tuple[int, ...]:
        """Makes the sequence the longest known beginning of a context. Returns the tokens that are left to forward.

        Raises OverloadedError, with the sequence consistent.
        """
        self.cut(self.count_common(list(context_ids)))
        return self.append_known(tuple(context_ids[self.num_tokens :]))

    def cut(self, num_tokens: int) -> None:
        """Discards the tokens after the first ones; more, if the cache must. Their nodes stay, with keys and values."""
        num_stored = max(num_tokens, self._num_before)
        if num_stored < self.num_tokens:
            path = tuple(self.token_ids[self._num_before :])
            for index, stored in enumerate(self.cache.copy_tokens(num_stored), num_stored - self._num_before + 1):
                if (node := self._nodes.get(path[:index])) is not None:
                    node.stored = stored
        self.cache.cut(num_tokens)
        num_tokens = self.cache.num_tokens
        del self.token_ids[num_tokens:]
        if num_tokens < self._num_before:
            self._nodes.clear()
            self._num_before = num_tokens

    def append_known(self, token_ids: tuple[int, ...]) -> tuple[int, ...]:
        """Appends the first of the tokens, as far as they are nodes. Returns the others. Raises OverloadedError."""
        base = self._end
        known = []
        for count in range(1, len(token_ids) + 1):
            node = self._touch(base + token_ids[:count])
            if node is None or node.stored is None:
                break
            known.append(node.stored)
        if known:
            self.cache.append(known)
            self.token_ids += token_ids[: len(known)]
        return token_ids[len(known) :]

    def recall_rows(self, tree: TokenTree) -> list[LogitRow | None]:
        """The known logits after the end of the sequence, then after each branch of a tree below it."""
        nodes = [self._touch(key) for key in (self._end, *self._iter_keys(tree))]
        return [None if node is None else node.row for node in nodes]

    def build_part(self, tree: TokenTree, branches: Sequence[int]) -> SequencePart:
        """A pass over these branches of a tree below the end, which has no chain, and over those of their ancestors
        whose keys and values are not stored.
        """
        nodes = [self._nodes.get(key) for key in self._iter_keys(tree)]
        needed = {ancestor for branch in branches for ancestor in tree.iter_path(branch)}
        stored: dict[int, TokenKV] = {}  # of branches that are not read again, and below none that is
        for branch in sorted(needed.difference(branches)):
            node, parent = nodes[branch], tree.parents[branch]
            if node and node.stored is not None and (parent is None or parent in stored):
                stored[branch] = node.stored
        order = [*stored, *sorted(needed - stored.keys())]
        place = {branch: index for index, branch in enumerate(order)}
        parents = tuple(None if (parent := tree.parents[branch]) is None else place[parent] for branch in order)
        pruned = TokenTree((), tuple(tree.branch_ids[branch] for branch in order), parents)
        return SequencePart(self.cache, pruned, tuple(stored.values()))

    def absorb(self, part: SequencePart, rows: Sequence[LogitRow], num_others: int = 0) -> None:
        """Appends the chain of a part that was forwarded, and keeps its branches as nodes.

        `num_others`: how many nodes, used before these, must stay.
        """
        tree = part.tree
        copies = self.cache.copy_branches(tree) if tree.branch_ids else []
        self.cache.keep(tree)
        self.token_ids += tree.chain_ids
        self._move_anchor()
        if not part.wants_logits:
            return
        read = iter(rows)
        if tree.chain_ids:
            self._add(self._end, next(read), None)
        for index, key in enumerate(self._iter_keys(tree)):
            if index >= len(part.stored):
                self._add(key, next(read), copies[index])
        # Those of this pass are the latest.
        while len(self._nodes) > _MAX_NODES + tree.num_tokens + num_others:
            del self._nodes[next(iter(self._nodes))]

    def fork(self, num_tokens: int | None = None, room: int | None = None) -> "TokenSequence":
        """An independent copy of the first tokens, or of fewer, if the cache must; of all if None.

        `room`: its capacity in tokens; None: that of this sequence. Raises OverloadedError.
        """
        other = TokenSequence(self.cache.fork(num_tokens, self.room if room is None else room))
        other.token_ids = self.token_ids[: other.cache.num_tokens]
        if other.num_tokens >= self._num_before:
            other._num_before = self._num_before
            other._nodes = {key: _Node(node.row, node.stored) for key, node in self._nodes.items()}
        else:
            other._num_before = other.num_tokens
        return other

    @property
    def num_row_bytes(self) -> int:
        """The memory of the logits."""
        return sum(node.row.nbytes for node in self._nodes.values() if node.row is not None)

    def drop_rows(self, max_bytes: int = 0, num_kept: int = 0) -> None:
        """Frees the logits that were used longest ago until `max_bytes` are left, but not the latest `num_kept`."""
        num_bytes = self.num_row_bytes
        for node in list(self._nodes.values())[: max(len(self._nodes) - num_kept, 0)]:
            if num_bytes > max_bytes and node.row is not None:
                num_bytes -= node.row.nbytes
                node.row = None

    @property
    def _end(self) -> tuple[int, ...]:
        return tuple(self.token_ids[self._num_before :])

    def _iter_keys(self, tree: TokenTree) -> Iterator[tuple[int, ...]]:
        base = self._end
        keys: list[tuple[int, ...]] = []
        for token_id, parent in zip(tree.branch_ids, tree.parents, strict=True):
            keys.append((*(base if parent is None else keys[parent]), token_id))
            yield keys[-1]

    def _touch(self, key: tuple[int, ...]) -> _Node | None:
        node = self._nodes.pop(key, None)
        if node is not None:
            self._nodes[key] = node
        return node

    def _add(self, key: tuple[int, ...], row: LogitRow, stored: TokenKV | None) -> None:
        node = self._nodes.pop(key, None) or _Node()
        self._nodes[key] = _Node(row, node.stored if stored is None else stored)

    def _move_anchor(self) -> None:
        """Moves the anchor behind the end, so that the names of nodes stay short."""
        if self.num_tokens - self._num_before <= _MAX_ANCHOR_DISTANCE:
            return
        num_moved = self.num_tokens - _MIN_ANCHOR_DISTANCE - self._num_before
        gone = tuple(self.token_ids[self._num_before : self._num_before + num_moved])
        self._nodes = {key[num_moved:]: node for key, node in self._nodes.items() if key[:num_moved] == gone}
        self._num_before += num_moved
