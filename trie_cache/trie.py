"""The vocabulary as a prefix tree, held as a sorted list.

Naively, the tokens that start with a prefix are found by a look at every token, or by a walk below the prefix's node in
a tree of dictionaries: 53,021 of them below a blank, in a vocabulary of 151,643. Instead:

1. Sort the tokens by their bytes. All that start with a prefix now stand side by side: two numbers, `[lo, hi)`.
2. Bisect for both ends. `lo` is where the prefix itself would stand, `hi` where the prefix followed by the greatest
   bytes there are would.
3. Beside each token keep the place of the longest token that it begins with. Followed from the place where a prefix
   would stand, these links pass every token that the prefix begins with.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trie_cache.vocabulary import Vocabulary

_MIN_HOT_TOKENS = 512


class Interval(NamedTuple):  # a named tuple is made in a third of a frozen dataclass's time, and this is a hot path
    """Ranks `lo` to `hi - 1`; empty where both are equal."""

    lo: int
    hi: int

    @property
    def num_tokens(self) -> int:
        """How many tokens the interval holds."""
        return self.hi - self.lo


class Children(NamedTuple):
    """What follows a prefix in the tokens that start with it. Arrays have one item for each byte that follows."""

    num_ended: int  # tokens that are the prefix itself; they stand first in its interval
    bytes: npt.NDArray[np.uint8]  # [num_children], ascending
    starts: npt.NDArray[np.intp]  # [num_children]: where each one's tokens start, counted from the interval's `lo`


class Trie:
    """Finds tokens by what they begin with. Special tokens, padding rows and empty tokens are not in it.

    Tokens of equal bytes stand side by side, the lower id first, so intervals and ancestors hold all of them.
    """

    def __init__(self, tokens: list[bytes], ids: "array[int]", num_rows: int) -> None:
        """Use `build`. `tokens` are sorted, and `ids` are theirs."""
        self.order: npt.NDArray[np.int32] = _freeze(np.frombuffer(ids, np.int32))  # [num_tokens] rank -> token id
        self.rank: npt.NDArray[np.int32] = _build_rank(self.order, num_rows)  # [num_rows] id -> rank, or num_tokens
        self._tokens = tokens
        self._ids = ids  # the memory of `order`; single items are had here in a quarter of NumPy's time
        self._parents = _build_parents(tokens)
        self._text = np.frombuffer(b"".join(tokens) + b"\x00", np.uint8)  # one more: what is read behind the last token
        self._ends = np.cumsum([0, *map(len, tokens)], dtype=np.int32)  # in `_text`, the first token's start before it
        self._hot_children: dict[tuple[Interval, int], Children] = {}  # of the few prefixes that many tokens start with
        self._after = b"\xff" * max(map(len, tokens), default=0)  # prefix + this sorts behind all that extend prefix

    @classmethod
    def build(cls, vocabulary: Vocabulary) -> "Trie":
        """The trie of the vocabulary's ordinary tokens."""
        token_bytes = vocabulary.token_bytes
        ids = [token_id for token_id, text in enumerate(token_bytes) if text]
        ids.sort(key=token_bytes.__getitem__)
        return cls([token_bytes[token_id] for token_id in ids], array("i", ids), len(token_bytes))

    @property
    def num_tokens(self) -> int:
        """How many tokens are in the trie: the length of `order`."""
        return len(self._tokens)

    @property
    def num_rows(self) -> int:
        """Rows of the model's head: the length of `rank`."""
        return len(self.rank)

    @property
    def max_token_bytes(self) -> int:
        """The length of the longest token."""
        return len(self._after)

    def find_interval(self, prefix: bytes) -> Interval:
        """Where in `order` the tokens are that start with `prefix`, itself included. All of them for `b""`."""
        lo = bisect_left(self._tokens, prefix)
        return Interval(lo, bisect_right(self._tokens, prefix + self._after, lo))

    def find_ids(self, text: bytes) -> list[int]:
        """The ids of the tokens whose bytes are exactly this text."""
        place = bisect_left(self._tokens, text)
        found = []
        while place < len(self._tokens) and self._tokens[place] == text:
            found.append(self._ids[place])
            place += 1
        return found

    def find_children(self, interval: Interval, num_bytes: int) -> Children:
        """What follows a prefix of `num_bytes`, given its interval."""
        if interval.num_tokens < _MIN_HOT_TOKENS:
            return self._find_children(interval, num_bytes)
        found = self._hot_children.get((interval, num_bytes))
        if found is None:
            found = self._hot_children[interval, num_bytes] = self._find_children(interval, num_bytes)
        return found

    def _find_children(self, interval: Interval, num_bytes: int) -> Children:
        lo, hi = interval
        num_ended = 0
        while lo + num_ended < hi and self._ends[lo + num_ended + 1] - self._ends[lo + num_ended] == num_bytes:
            num_ended += 1
        following = self._text[self._ends[lo + num_ended : hi] + num_bytes]
        if not following.size:
            return Children(num_ended, following, np.empty(0, np.intp))
        starts = np.concatenate(([0], np.flatnonzero(following[1:] != following[:-1]) + 1))
        return Children(num_ended, following[starts], starts + num_ended)

    def spell(self, token_id: int) -> bytes:
        """The token's bytes; `b""` for a special token or a padding row."""
        rank = self.rank[token_id]
        return self._tokens[rank] if rank < len(self._tokens) else b""

    def find_ancestors(self, prefix: bytes) -> tuple[int, ...]:
        """Ids of the tokens that are a proper, non-empty beginning of `prefix`, the shortest first."""
        tokens, parents = self._tokens, self._parents
        place = bisect_left(tokens, prefix) - 1
        while place >= 0 and not prefix.startswith(tokens[place]):
            place = parents[place]
        found = []
        while place >= 0:
            found.append(self._ids[place])
            place = parents[place]
        found.reverse()
        return tuple(found)

    def iter_prefixes(self, min_tokens: int = 1) -> Iterator[tuple[bytes, Interval]]:
        """Every non-empty prefix that at least `min_tokens` tokens start with, and where these are."""
        waiting = list(self._iter_children(b"", Interval(0, self.num_tokens)))
        while waiting:
            prefix, interval = waiting.pop()
            if interval.num_tokens >= min_tokens:
                yield prefix, interval
                waiting.extend(self._iter_children(prefix, interval))

    def _iter_children(self, prefix: bytes, interval: Interval) -> Iterator[tuple[bytes, Interval]]:
        """The prefixes that are one byte longer than `prefix`, given its interval."""
        depth = len(prefix)
        place = bisect_right(self._tokens, prefix, *interval)  # behind the prefix itself
        while place < interval.hi:
            child = self._tokens[place][: depth + 1]
            start, place = place, bisect_right(self._tokens, child + self._after, place, interval.hi)
            yield child, Interval(start, place)


def _build_rank(order: npt.NDArray[np.int32], num_rows: int) -> npt.NDArray[np.int32]:
    rank = np.full(num_rows, len(order), np.int32)  # for ids that are no text: outside every interval
    rank[order] = np.arange(len(order), dtype=np.int32)
    return _freeze(rank)


def _build_parents(tokens: list[bytes]) -> "array[int]":
    """For each of the sorted `tokens` the place of the nearest one before that it begins with; -1 where none is.

    That is the longest token that is its proper beginning, or one of equal bytes.
    """
    parents = array("i", bytes(4 * len(tokens)))
    candidate = -1
    for place, token in enumerate(tokens):
        while candidate >= 0 and not token.startswith(tokens[candidate]):
            candidate = parents[candidate]
        parents[place] = candidate
        candidate = place
    return parents


def _freeze(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    values.flags.writeable = False
    return values
