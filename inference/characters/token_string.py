"""Token strings that share their beginnings, and the next-token distribution after each.

To read a string is to run the model over it, which fills in this distribution. `ModelReader` does that with the
engine's interface to a model and the engine's memory of what was prefilled: the strings' common beginning, the *trunk*,
is a `TokenSequence`, and below it, the strings are branches of one token tree. Keys and values of branches are
remembered there; rows only as long as the strings have them.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from inference.errors import InvalidRequestError
from inference.healing.token_tree import TokenTree, TreeBuilder
from inference.model.language_model import LanguageModel, SequencePart
from inference.model.sampler import find_row
from inference.model.token_sequence import TokenSequence
from trie_cache.trie import Trie

_MAX_STRINGS = 128  # in one pass: it gives a row of the vocabulary's size for each
_MAX_ROW_BYTES = 512 * 2**20
_MAX_CHAIN = 512  # tokens in one pass, so that a long context can be stopped between two

Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]


class TokenString:
    """A token string: a parent string and the tokens after it. It exists as long as something refers to it.

    Extending a string twice by the same token gives the same object, so strings are compared by identity.
    """

    __slots__ = ("__weakref__", "_children", "log_end", "log_mass", "log_probs", "num_tokens", "parent", "token_ids")

    def __init__(self, token_ids: tuple[int, ...], parent: "TokenString | None" = None) -> None:
        """Creates a root; `extend` creates the other strings."""
        self.token_ids = token_ids  # the tokens after `parent`; at least one
        self.parent = parent
        self.num_tokens: int = len(token_ids) + (parent.num_tokens if parent else 0)
        self.log_mass: float | None = None  # log probability that a token sequence begins with this string, once known
        self.log_probs: Floats | None = None  # [num_tokens of the trie], by rank: of the next token; None if not read
        self.log_end = -np.inf  # log probability that the text ends here
        self._children: WeakValueDictionary[int, TokenString] = WeakValueDictionary()

    def extend(self, token_ids: Iterable[int]) -> "TokenString":
        """The string extended by these tokens."""
        string = self
        for token_id in token_ids:
            child = string._children.get(token_id)
            if child is None:
                child = string._children[token_id] = TokenString((token_id,), string)
            string = child
        return string

    def extend_at_once(self, token_ids: tuple[int, ...], num_tokens: int) -> "TokenString":
        """The string extended by the last of these tokens, up to `num_tokens` in all. The mass stays the same."""
        kept = token_ids[-max(num_tokens - self.num_tokens, 1) :]
        if not kept:
            return self
        string = TokenString(kept, self)
        string.log_mass = self.log_mass
        return string

    def move_window(self, num_tokens: int) -> "TokenString":
        """The string cut to its root and its last tokens, up to `num_tokens` in all. The mass stays the same."""
        root = self
        while root.parent is not None:
            root = root.parent
        string = root.extend_at_once(self.find_tokens_since(root), num_tokens)
        string.log_mass = self.log_mass
        return string

    def move(self, old: "TokenString", new: "TokenString") -> "TokenString":
        """The string with its beginning `old` replaced by `new`."""
        string = new.extend(self.find_tokens_since(old))
        string.log_mass, string.log_end = self.log_mass, self.log_end
        return string

    def set_log_mass(self, rank: npt.NDArray[np.int32]) -> None:
        """Sets `log_mass` from the row of the parent, which must be one token shorter."""
        assert self.parent is not None, "a root has no parent"
        assert self.parent.log_probs is not None, "the parent has been read"
        [token_id] = self.token_ids
        self.log_mass = self.parent.get_log_mass() + float(self.parent.log_probs[rank[token_id]])

    def get_log_mass(self) -> float:
        """Returns `log_mass`, which must be known."""
        assert self.log_mass is not None, "the mass is known once the parent has been read"
        return self.log_mass

    def find_ancestor(self, count: int) -> "TokenString":
        """The string without its last `count` tokens; without fewer if `extend_at_once` added the others."""
        string = self
        while self.num_tokens - string.num_tokens < count and len(string.token_ids) == 1 and string.parent:
            string = string.parent
        return string

    def begins_with(self, other: "TokenString") -> bool:
        """True if this is the other string or an extension of it."""
        string: TokenString | None = self
        while string is not None and string.num_tokens > other.num_tokens:
            string = string.parent
        return string is other

    def find_tokens_since(self, beginning: "TokenString | None") -> tuple[int, ...]:
        """The tokens after `beginning`; all if it is None."""
        parts: list[tuple[int, ...]] = []
        string: TokenString | None = self
        while string is not None and string is not beginning:
            parts.append(string.token_ids)
            string = string.parent
        return tuple(chain.from_iterable(reversed(parts)))


def find_common_beginning(strings: Iterable[TokenString]) -> TokenString:
    """The longest string that all of them begin with. They have the same root."""
    common, *others = strings
    for other in others:
        while not other.begins_with(common):
            assert common.parent is not None, "all strings share one root"
            common = common.parent
    return common


class TokenReader(Protocol):
    """A model that computes next-token distributions after token strings with a common beginning."""

    max_tokens: int  # the most tokens of a string

    def read(self, strings: Sequence[TokenString]) -> None:
        """Fills `log_probs` and `log_end` of the strings, in one forward pass over their unread tokens.

        The probabilities sum to one. They exclude special tokens, except those that end the text.
        """


PassWatch = Callable[[], AbstractContextManager[object]]  # entered for each forward pass, which it may prevent


def read_all(reader: TokenReader, strings: Iterable[TokenString]) -> None:
    """Reads the strings that have no row, in one forward pass."""
    unread = [string for string in strings if string.log_probs is None]
    if unread:
        reader.read(unread)


class ModelReader:
    """Reads strings with a model."""

    def __init__(
        self,
        model: LanguageModel,
        trie: Trie,
        end_ids: Sequence[int],
        max_tokens: int,
        watch: PassWatch = nullcontext,
        max_row_bytes: int = _MAX_ROW_BYTES,
    ) -> None:
        """`max_tokens`: the limit for one string.

        `max_row_bytes`: for the rows of all strings that are read at once; a wide beam has many.
        """
        self.max_tokens = min(max_tokens, model.max_tokens)
        self._num_texts = trie.num_tokens
        self._columns = np.concatenate([trie.order, np.array(end_ids, np.int32)])
        self._model = model
        self._watch = watch
        self._max_row_bytes = max_row_bytes
        self._sequence = TokenSequence(model.new_cache(_MAX_CHAIN))

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
        sequence, trunk, paths = self._sequence, find_common_beginning(strings), TreeBuilder()
        nodes = [paths.add_path(string.find_tokens_since(trunk)) for string in strings]
        tree, chain = paths.build(()), self._begin(trunk, is_wanted=None in nodes)
        if chain:
            self._forward(SequencePart(sequence.cache, tree.with_chain(chain)))
        else:
            self._forward(sequence.build_part(tree, [node for node in nodes if node is not None]))
        rows = sequence.recall_rows(tree)
        logits = np.stack([row.to_host() for row in (rows[find_row(node)] for node in nodes) if row is not None])
        sequence.drop_rows()
        for string, line in zip(strings, _normalize(logits[:, self._columns]), strict=True):
            string.log_probs = line[: self._num_texts].copy()
            string.log_end = float(np.logaddexp.reduce(line[self._num_texts :], dtype=np.float64))

    def _begin(self, trunk: TokenString, *, is_wanted: bool) -> tuple[int, ...]:
        """Makes the sequence the beginning of the trunk. Returns the last tokens, which are left to forward.

        `is_wanted`: at least one is, for the logits after the trunk.
        """
        token_ids = trunk.find_tokens_since(None)
        chain = self._sequence.reuse(token_ids)
        if is_wanted and not chain:
            self._sequence.cut(len(token_ids) - 1)
            chain = token_ids[self._sequence.num_tokens :]
        while len(chain) > _MAX_CHAIN:
            self._forward(SequencePart(self._sequence.cache, TokenTree(chain[:_MAX_CHAIN]), wants_logits=False))
            chain = chain[_MAX_CHAIN:]
        return chain

    def _forward(self, part: SequencePart) -> None:
        with self._watch():
            [rows] = self._model.forward([part])
        self._sequence.absorb(part, rows)


def _normalize(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The logarithms of the probabilities that `logits`, [num_rows, num_columns], stand for. Overwrites `logits`."""
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits
