"""The bytes of every token, and the vocabulary as a prefix tree, stored as a sorted list.

Naive form: to find the tokens that start with a prefix, scan all tokens, or walk the subtree of the prefix in a tree of
dictionaries. Below a blank there are 53,021 of the 151,643 tokens of a vocabulary. Instead:

1. Sort the tokens by their bytes. The tokens that start with a prefix are now adjacent: the ranks `[lo, hi)`.
2. Bisect for both ends. `lo` is the insertion point of the prefix, `hi` that of the prefix followed by the greatest
   possible bytes.
3. For each token, store the rank of the longest token that is its proper beginning (its parent). The parents, followed
   from the insertion point of a prefix, pass every token that the prefix begins with.

While bytes remain to be spelled, the strategy `greedy` needs the set of the tokens that may come next at each step, and
copying a long interval with the ids beside it is slow. So `HotPrefixCache` keeps such sets. On a GPU the interval and
the few ids suffice, because ranks are compared there: `lo <= rank[token] < hi`.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_Ids = npt.NDArray[np.int32]  # [num_allowed] in the order of their bytes; read-only

# The bound of Sweep's post on token healing. A smaller set takes about 6 µs to build. Of a 151,643-token vocabulary, 51
# prefixes reach it.
_MIN_HOT_TOKENS = 1001
_MAX_RECENT = 256  # at most 1 MB: a set that is not hot has at most 1,000 ids, and one for each byte of the prefix
_MIN_CACHED_TOKENS = 512  # in an interval; the children of a smaller one are found quickly


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The bytes of every token, and the ids that are not text.

    Different ids may have the same bytes: SentencePiece has both `<0x41>` and `A`.
    """

    token_bytes: tuple[bytes, ...]  # indexed by id, one per row of the model's head; empty for an id that is not text
    special_tokens: Mapping[str, int]  # name -> id of special, added and control tokens
    special_ids: frozenset[int]  # these ids and `end_ids`; not the padding rows
    end_ids: frozenset[int]  # the ids that end a text

    @property
    def num_rows(self) -> int:
        """The number of rows of the model's head. A row without a token is padding and has empty bytes."""
        return len(self.token_bytes)

    def has(self, token_id: int) -> bool:
        """True for a token, text or not; false for padding."""
        return 0 <= token_id < self.num_rows and (bool(self.token_bytes[token_id]) or token_id in self.special_ids)

    @classmethod
    def from_tokens(
        cls,
        tokens: Mapping[int, bytes],
        special_tokens: Mapping[str, int],
        end_ids: Iterable[int] = (),
        num_rows: int | None = None,
    ) -> "Vocabulary":
        """The vocabulary of `tokens` (id -> bytes). `special_tokens` (name -> id) and `end_ids` are not text.

        `num_rows`: the rows of the model's head; by default the largest id plus one. Special tokens without a row are
        dropped: the model can neither read nor write them.
        Raises ValueError if an ordinary token has no row.
        """
        end_ids = frozenset(end_ids)
        special_ids = end_ids.union(special_tokens.values())
        if num_rows is None:
            num_rows = max([*tokens, *special_ids], default=-1) + 1
        token_bytes = [b""] * num_rows
        for token_id, text in tokens.items():
            if token_id in special_ids:
                continue
            if not 0 <= token_id < num_rows:
                raise ValueError(f"token {text!r} has id {token_id}, but the model's head has {num_rows} rows")
            token_bytes[token_id] = text
        rows = range(num_rows)
        return cls(
            token_bytes=tuple(token_bytes),
            special_tokens={name: token_id for name, token_id in special_tokens.items() if token_id in rows},
            special_ids=special_ids.intersection(rows),
            end_ids=end_ids.intersection(rows),
        )


class Interval(NamedTuple):  # hot path: a named tuple is created in a third of the time of a frozen dataclass
    """Ranks `lo` to `hi - 1`; empty if both are equal."""

    lo: int
    hi: int

    @property
    def num_tokens(self) -> int:
        """The number of tokens in the interval."""
        return self.hi - self.lo


class Children(NamedTuple):
    """The bytes that follow a prefix in the tokens that start with it. The arrays have one item per byte value."""

    num_exact: int  # tokens equal to the prefix; they come first in its interval
    bytes: npt.NDArray[np.uint8]  # [num_children], ascending
    starts: npt.NDArray[np.intp]  # [num_children]: the first token with each byte, counted from `lo`


class Trie:
    """Finds tokens by their first bytes. It contains no special tokens, padding rows or empty tokens.

    Tokens with equal bytes are adjacent, lower id first, so intervals and ancestors contain all of them.
    """

    def __init__(self, tokens: list[bytes], ids: "array[int]", num_rows: int) -> None:
        """Use `build`. `tokens` are sorted; `ids` are their ids, in the same order."""
        self.order: npt.NDArray[np.int32] = _freeze(np.frombuffer(ids, np.int32))  # [num_tokens] rank -> token id
        rank = np.full(num_rows, len(ids), np.int32)  # of ids that are not text: outside every interval
        rank[self.order] = np.arange(len(ids), dtype=np.int32)
        self.rank: npt.NDArray[np.int32] = _freeze(rank)  # [num_rows] id -> rank, or num_tokens
        self._tokens = tokens
        self._ids = ids  # shares memory with `order`; reading one item takes a quarter of NumPy's time
        self._parents = _build_parents(tokens)
        self._text = np.frombuffer(b"".join(tokens) + b"\x00", np.uint8)  # one byte more: read after the last token
        self._ends = np.cumsum([0, *map(len, tokens)], dtype=np.int32)  # token i is _text[_ends[i] : _ends[i + 1]]
        self._cached_children: dict[tuple[Interval, int], Children] = {}  # of large intervals, cached
        self._after = b"\xff" * max(map(len, tokens), default=0)  # prefix + this sorts after every extension of prefix

    @classmethod
    def build(cls, vocabulary: Vocabulary) -> "Trie":
        """The trie of the vocabulary's ordinary tokens."""
        token_bytes = vocabulary.token_bytes
        ids = [token_id for token_id, text in enumerate(token_bytes) if text]
        ids.sort(key=token_bytes.__getitem__)
        return cls([token_bytes[token_id] for token_id in ids], array("i", ids), len(token_bytes))

    @property
    def num_tokens(self) -> int:
        """The number of tokens in the trie: the length of `order`."""
        return len(self._tokens)

    @property
    def max_token_bytes(self) -> int:
        """The length of the longest token."""
        return len(self._after)

    def find_interval(self, prefix: bytes) -> Interval:
        """The ranks of the tokens that start with `prefix` or are equal to it. All tokens for `b""`."""
        lo = bisect_left(self._tokens, prefix)
        return Interval(lo, bisect_right(self._tokens, prefix + self._after, lo))

    def find_ids(self, text: bytes) -> list[int]:
        """The ids of the tokens whose bytes are exactly this text."""
        rank = bisect_left(self._tokens, text)
        found = []
        while rank < len(self._tokens) and self._tokens[rank] == text:
            found.append(self._ids[rank])
            rank += 1
        return found

    def find_children(self, interval: Interval, num_bytes: int) -> Children:
        """The bytes that follow a prefix of `num_bytes`, given its interval."""
        if interval.num_tokens < _MIN_CACHED_TOKENS:
            return self._find_children(interval, num_bytes)
        found = self._cached_children.get((interval, num_bytes))
        if found is None:
            found = self._cached_children[interval, num_bytes] = self._find_children(interval, num_bytes)
        return found

    def _find_children(self, interval: Interval, num_bytes: int) -> Children:
        lo, hi = interval
        num_exact = 0
        while lo + num_exact < hi and self._ends[lo + num_exact + 1] - self._ends[lo + num_exact] == num_bytes:
            num_exact += 1
        following = self._text[self._ends[lo + num_exact : hi] + num_bytes]
        if not following.size:
            return Children(num_exact, following, np.empty(0, np.intp))
        starts = np.concatenate(([0], np.flatnonzero(following[1:] != following[:-1]) + 1))
        return Children(num_exact, following[starts], starts + num_exact)

    def spell(self, token_id: int) -> bytes:
        """The token's bytes; `b""` for a special token or a padding row."""
        rank = self.rank[token_id]
        return self._tokens[rank] if rank < len(self._tokens) else b""

    def find_ancestors(self, prefix: bytes) -> tuple[int, ...]:
        """The ids of the tokens that are a proper, non-empty beginning of `prefix`, shortest first."""
        tokens, parents = self._tokens, self._parents
        rank = bisect_left(tokens, prefix) - 1
        while rank >= 0 and not prefix.startswith(tokens[rank]):
            rank = parents[rank]
        found = []
        while rank >= 0:
            found.append(self._ids[rank])
            rank = parents[rank]
        found.reverse()
        return tuple(found)

    def iter_prefixes(self, min_tokens: int = 1) -> Iterator[tuple[bytes, Interval]]:
        """Every non-empty prefix that at least `min_tokens` tokens start with, and the interval of these tokens."""
        waiting = [(b"", Interval(0, self.num_tokens))]
        while waiting:
            prefix, interval = waiting.pop()
            children = self.find_children(interval, len(prefix))
            ranks = [*(interval.lo + children.starts).tolist(), interval.hi]
            for byte, (lo, hi) in zip(children.bytes, pairwise(ranks), strict=True):
                if hi - lo >= min_tokens:
                    waiting.append((prefix + bytes([byte]), Interval(lo, hi)))
                    yield waiting[-1]


def _build_parents(tokens: list[bytes]) -> "array[int]":
    """For each of the sorted `tokens`, the rank of its parent: the nearest earlier token that it begins with, or -1.

    The parent is the longest token that is a proper beginning, or a token with equal bytes.
    """
    parents = array("i", bytes(4 * len(tokens)))
    candidate = -1
    for rank, token in enumerate(tokens):
        while candidate >= 0 and not token.startswith(tokens[candidate]):
            candidate = parents[candidate]
        parents[rank] = candidate
        candidate = rank
    return parents


def _freeze(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    values.flags.writeable = False
    return values


def find_allowed_ids(trie: Trie, prefix: bytes) -> _Ids:
    """The tokens that start with a prefix, and those that the prefix starts with.

    For `b""`, these are all ordinary tokens. Special tokens are never among them.
    """
    (lo, hi), ancestor_ids = trie.find_interval(prefix), trie.find_ancestors(prefix)
    ids: _Ids = np.concatenate((np.array(ancestor_ids, np.int32), trie.order[lo:hi]))
    ids.flags.writeable = False
    return ids


class HotPrefixCache:
    """The allowed tokens of any prefix. Not thread-safe.

    A prefix that more than 1,000 tokens start with is hot: its set is built by the constructor and never evicted. Of
    the other sets, the 256 most recently used are cached.
    """

    def __init__(self, trie: Trie, min_hot_tokens: int = _MIN_HOT_TOKENS, max_recent: int = _MAX_RECENT) -> None:
        hot_prefixes = [b"", *(prefix for prefix, _ in trie.iter_prefixes(min_hot_tokens))]
        self._hot = {prefix: find_allowed_ids(trie, prefix) for prefix in hot_prefixes}
        self._find_recent = lru_cache(max_recent)(lambda prefix: find_allowed_ids(trie, prefix))

    def find(self, prefix: bytes) -> _Ids:
        """The tokens that may come next while `prefix` remains to be spelled."""
        hot = self._hot.get(prefix)
        return self._find_recent(prefix) if hot is None else hot
