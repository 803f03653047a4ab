"""A `TokenReader` that runs a model, with the engine's interface to it.

The cache holds the strings' common beginning, the *trunk*. Below it, the strings are branches of one token tree. Keys
and values of a branch are stored as long as its string exists, and are given back to the model with the next tree.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from inference.characters.token_string import PassWatch, TokenString, find_common_beginning
from inference.errors import InvalidRequestError, OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import LanguageModel, Part
from trie_cache.trie import Trie

_MAX_STRINGS = 128  # in one pass: it gives a row of the vocabulary's size for each
_MAX_ROW_BYTES = 512 * 2**20
_MAX_CHAIN = 512  # tokens in one pass, so that a long context can be stopped between two


class ModelReader:
    """Reads strings with a model. Keys and values are stored as long as their strings exist."""

    def __init__(
        self,
        model: LanguageModel,
        trie: Trie,
        end_ids: Sequence[int],
        max_tokens: int,
        max_stored: int,
        watch: PassWatch | None = None,
        max_row_bytes: int = _MAX_ROW_BYTES,
    ) -> None:
        """`max_tokens`: the limit for one string. `max_stored`: for the tokens whose keys and values are stored.

        `max_row_bytes`: for the rows of all strings that are read at once; a wide beam has many.
        """
        self.max_tokens = min(max_tokens, model.max_tokens)
        self._num_texts = trie.num_tokens
        self._columns = np.concatenate([trie.order, np.array(end_ids, np.int32)])
        self._model = model
        self._max_stored = max_stored
        self._watch = watch
        self._max_row_bytes = max_row_bytes
        self._cache = model.new_cache(_MAX_CHAIN)
        self._path: list[TokenString] = []  # from the root to the trunk; the cache has the first of its tokens, or all
        self._stored: WeakKeyDictionary[TokenString, list[Any]] = WeakKeyDictionary()  # StoredRows of its own tokens

    def read(self, strings: Sequence[TokenString]) -> None:
        """Fills `log_probs` and `log_end` of the strings, many in one forward pass.

        Raises OverloadedError, InvalidRequestError if they are too many, and what the watch raises.
        """
        num_bytes = 4 * len(self._columns) * len(strings)  # of float32
        if num_bytes > self._max_row_bytes:
            raise InvalidRequestError(
                f"the probabilities after {len(strings)} token strings take {num_bytes >> 20} MiB, and at most "
                f"{self._max_row_bytes >> 20} are allowed: ask for a smaller width"
            )
        for first in range(0, len(strings), _MAX_STRINGS):
            self._read(strings[first : first + _MAX_STRINGS])

    def _read(self, strings: Sequence[TokenString]) -> None:
        trunk = find_common_beginning(strings)
        chain = self._move_cache(trunk, is_wanted=trunk in strings)
        branches = _Branches(trunk, strings, {} if chain else self._stored)
        self._check_room(len(chain) + len(branches.token_ids))
        while len(chain) > _MAX_CHAIN:
            self._forward(Part(self._cache, TokenTree(chain[:_MAX_CHAIN]), wants_logits=False))
            chain = chain[_MAX_CHAIN:]
        rows, copies = self._forward(Part(self._cache, branches.build_tree(chain), tuple(branches.stored)))
        self._stored.update({string: branches.find_own(string, copies) for string in branches.fresh})
        end = bool(chain) - len(branches.stored)  # the row of the first branch
        logits = self._model.copy_logits([rows[0 if each is trunk else end + branches.ends[each]] for each in strings])
        for string, line in zip(strings, _normalize(logits[:, self._columns]), strict=True):
            string.log_probs = line[: self._num_texts].copy()
            string.log_end = float(np.logaddexp.reduce(line[self._num_texts :], dtype=np.float64))

    def _move_cache(self, trunk: TokenString, *, is_wanted: bool) -> tuple[int, ...]:
        """Makes the cache the longest known beginning of the trunk. Returns the tokens that are left to forward.

        `is_wanted`: at least one is, for the logits after the trunk.
        """
        path = trunk.find_path()
        new = [string for string in path if string not in set(self._path)]
        num_common = trunk.num_tokens - sum(len(string.token_ids) for string in new)
        self._store_rest([string for string in self._path if string not in set(path)], num_common)
        self._cache.cut(min(num_common, self._cache.num_tokens))
        self._path = path
        for string in new:
            if string not in self._stored or self._cache.num_tokens + len(string.token_ids) < string.num_tokens:
                break
            self._cache.append(self._stored[string])
        if is_wanted and self._cache.num_tokens == trunk.num_tokens:
            self._cache.cut(trunk.num_tokens - 1)
        token_ids = [token_id for string in path for token_id in string.token_ids]
        return tuple(token_ids[self._cache.num_tokens :])

    def _store_rest(self, strings: Sequence[TokenString], start: int) -> None:
        """Stores the keys and values of strings that the cache has, and that will be cut off after `start` tokens."""
        lost = [
            string for string in strings if string not in self._stored and string.num_tokens <= self._cache.num_tokens
        ]
        copies = self._cache.copy_tokens(start) if lost else []
        for string in lost:
            end = string.num_tokens - start
            self._stored[string] = copies[end - len(string.token_ids) : end]

    def _check_room(self, num_new: int) -> None:
        num_stored = sum(map(len, self._stored.values())) + self._cache.num_tokens
        if num_stored + num_new > self._max_stored:
            raise OverloadedError(f"too many states are in use: their keys and values take {num_stored} tokens")

    def _forward(self, part: Part) -> tuple[list[Any], list[Any]]:
        """The rows of a part, and the keys and values of its branches. Its chain is kept."""
        if self._watch is not None:
            self._watch.begin_pass()
        [rows] = self._model.forward([part])
        if self._watch is not None:
            self._watch.end_pass()
        copies = self._cache.copy_branches(part.tree)
        self._cache.keep(part.tree, None)
        return rows, copies


class _Branches:
    """The strings to read and those between them and the trunk, as branches of a tree."""

    def __init__(
        self, trunk: TokenString, strings: Sequence[TokenString], known: Mapping[TokenString, list[Any]]
    ) -> None:
        """`known`: keys and values of strings that are stored. They come first, and are not forwarded."""
        self.token_ids: list[int] = []
        self.ends: dict[TokenString, int] = {}  # the branch of a string's last token
        self.stored: list[Any] = []
        self._parents: list[int | None] = []
        needed = dict.fromkeys(below for string in strings for below in string.find_path(trunk))
        for string in needed:
            if string in known:
                self._add(string)
                self.stored += known[string]
        self.fresh = [string for string in needed if string not in known]
        for string in self.fresh:
            self._add(string)
        for string in strings:
            if string in known:  # its last token is forwarded again, for the logits
                self.ends[string] = self._add_token(string.token_ids[-1], self._parents[self.ends[string]])

    def build_tree(self, chain: tuple[int, ...]) -> TokenTree:
        """The tree of all branches below the chain."""
        return TokenTree(chain, tuple(self.token_ids), tuple(self._parents))

    def find_own(self, string: TokenString, copies: list[Any]) -> list[Any]:
        """Of the keys and values of all branches, those of the string's own tokens."""
        end = self.ends[string] + 1
        return copies[end - len(string.token_ids) : end]

    def _add(self, string: TokenString) -> None:
        end = None if string.parent is None else self.ends.get(string.parent)
        for token_id in string.token_ids:
            end = self._add_token(token_id, end)
        assert end is not None, "a string has tokens"
        self.ends[string] = end

    def _add_token(self, token_id: int, parent: int | None) -> int:
        self.token_ids.append(token_id)
        self._parents.append(parent)
        return len(self.token_ids) - 1


def _normalize(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The logarithms of the probabilities that `logits`, [num_rows, num_columns], stand for. Overwrites `logits`."""
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits
