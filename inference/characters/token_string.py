"""Token strings that share their beginnings, and the next-token distribution after each.

To read a string is to run the model over it, which fills in this distribution.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

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
