"""A `TokenReader` that runs a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from inference.characters.token_string import TokenString
from inference.errors import OverloadedError
from inference.model.row_store import RowStore
from trie_cache.trie import Trie

_NUM_SPARE_ROWS = 64  # with fewer free rows the store grows; unused rows cost time too
_NUM_ADDED_ROWS = 256


@dataclass(frozen=True, slots=True)
class _StoredRows:
    """The store's rows with a string's own tokens, and the rows that its last token sees."""

    rows: list[int]
    visible: npt.NDArray[np.bool_]  # [last visible row + 1]


@dataclass(frozen=True, slots=True)
class _Part:
    """The last tokens of a string, to forward."""

    token_ids: tuple[int, ...]
    num_tokens: int  # of the string
    stored: _StoredRows


class ModelReader:
    """Reads strings with a model. Keys and values are stored as long as their strings exist."""

    def __init__(self, store: RowStore, trie: Trie, end_ids: Sequence[int], max_tokens: int, max_rows: int) -> None:
        """`store`: empty. `max_tokens`: the limit for one string. `max_rows`: the limit for the store."""
        self.max_tokens = min(max_tokens, store.max_tokens)
        self._num_texts = trie.num_tokens
        self._columns = np.concatenate([trie.order, np.array(end_ids, np.int32)])
        self._store = store
        self._max_rows = max_rows
        self._stored: WeakKeyDictionary[TokenString, _StoredRows] = WeakKeyDictionary()
        self._free_rows = list(range(self._store.capacity))[::-1]
        self._num_keys = 0  # the first rows of the store, up to the last one used

    def read(self, strings: Sequence[TokenString]) -> None:
        """Fills `log_probs` and `log_end` of the strings in one forward pass. Raises OverloadedError."""
        fresh = self._find_fresh(strings)
        placed = self._place(fresh)
        again = [string for string in strings if string not in placed]
        parts = [_Part(string.token_ids, string.num_tokens, placed[string]) for string in fresh]
        parts += [_Part(string.token_ids[-1:], string.num_tokens, self._stored[string]) for string in again]
        places = dict(zip(fresh + again, accumulate(len(part.token_ids) for part in parts), strict=True))
        logits = self._forward(parts, [places[string] - 1 for string in strings])
        self._stored.update(placed)
        log_probs = _normalize(logits[:, self._columns])
        for string, line in zip(strings, log_probs, strict=True):
            string.log_probs = line[: self._num_texts].copy()
            string.log_end = float(np.logaddexp.reduce(line[self._num_texts :], dtype=np.float64))

    def _find_fresh(self, strings: Sequence[TokenString]) -> list[TokenString]:
        """The strings and their ancestors that are not stored yet, parents first."""
        fresh: dict[TokenString, None] = {}
        for string in strings:
            unread = []
            ancestor: TokenString | None = string
            while ancestor is not None and ancestor not in self._stored and ancestor not in fresh:
                unread.append(ancestor)
                ancestor = ancestor.parent
            fresh.update(dict.fromkeys(reversed(unread)))
        return list(fresh)

    def _place(self, fresh: Sequence[TokenString]) -> dict[TokenString, _StoredRows]:
        """Assigns rows to the strings' own tokens."""
        count = sum(len(string.token_ids) for string in fresh)
        if len(self._free_rows) < count:
            self._make_room(count)
        placed: dict[TokenString, _StoredRows] = {}
        for string in fresh:
            rows = [self._free_rows.pop() for _ in string.token_ids]
            seen = np.empty(0, np.bool_)
            if string.parent is not None:
                seen = (placed.get(string.parent) or self._stored[string.parent]).visible
            visible = np.zeros(max(max(rows) + 1, len(seen)), np.bool_)
            visible[: len(seen)] = seen
            visible[rows] = True
            placed[string] = _StoredRows(rows, visible)
            self._num_keys = max(self._num_keys, len(visible))
        return placed

    def _forward(self, parts: Sequence[_Part], wanted: Sequence[int]) -> npt.NDArray[np.float32]:
        masks = np.zeros((sum(len(part.token_ids) for part in parts), self._num_keys), np.bool_)
        rows: list[int] = []
        depths: list[int] = []
        for part in parts:
            count = len(part.token_ids)
            own_rows = part.stored.rows[-count:]
            for index in range(count):
                mask = masks[len(rows) + index]
                mask[: len(part.stored.visible)] = part.stored.visible
                mask[own_rows[index + 1 :]] = False
            rows += own_rows
            depths += range(part.num_tokens - count, part.num_tokens)
        token_ids = [token_id for part in parts for token_id in part.token_ids]
        return self._store.forward(token_ids, rows, depths, masks, wanted)

    def _make_room(self, count: int) -> None:
        """Frees the rows of strings that no longer exist. If these are too few, grows the store."""
        used = {row for stored in self._stored.values() for row in stored.rows}
        self._num_keys = max(used, default=-1) + 1
        if self._store.capacity - len(used) < max(count, _NUM_SPARE_ROWS):
            if len(used) + count > self._max_rows:
                raise OverloadedError(f"too many states are in use: their keys and values take {len(used)} tokens")
            self._store.grow(max(self._store.capacity, len(used) + count) + _NUM_ADDED_ROWS)
        self._free_rows = [row for row in reversed(range(self._store.capacity)) if row not in used]


def _normalize(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The logarithms of the probabilities that `logits`, [num_rows, num_columns], stand for. Overwrites `logits`."""
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits
