"""Token strings that share their beginnings, and the next-token distribution after each."""

from collections.abc import Iterable, Sequence
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]


class TokenString:
    """A token string: a parent, and the tokens that it adds to it. It lives as long as something refers to it.

    The same string extended twice by the same token gives the same object, so strings are compared by identity.
    """

    __slots__ = ("__weakref__", "_children", "log_end", "log_mass", "log_probs", "num_tokens", "parent", "token_ids")

    def __init__(self, token_ids: tuple[int, ...], parent: "TokenString | None" = None) -> None:
        """Makes the first string, a root; `extend` makes the others."""
        self.token_ids = token_ids  # that it adds to `parent`; at least one
        self.parent = parent
        self.num_tokens: int = len(token_ids) + (parent.num_tokens if parent else 0)
        self.log_mass: float | None = None  # log probability that a text's tokens begin with this string, once known
        self.log_probs: Floats | None = None  # [num_tokens of the trie], by rank: of the next token, once read
        self.log_end = -np.inf  # log probability that the text ends here
        self._children: WeakValueDictionary[int, TokenString] = WeakValueDictionary()

    def extend(self, token_ids: Iterable[int]) -> "TokenString":
        """The string with these tokens after it."""
        string = self
        for token_id in token_ids:
            child = string._children.get(token_id)
            if child is None:
                child = string._children[token_id] = TokenString((token_id,), string)
            string = child
        return string

    def extend_at_once(self, token_ids: tuple[int, ...], num_tokens: int) -> "TokenString":
        """The string with the last of these tokens after it, in all at most `num_tokens`. It keeps this one's mass."""
        kept = token_ids[-max(num_tokens - self.num_tokens, 1) :]
        if not kept:
            return self
        string = TokenString(kept, self)
        string.log_mass = self.log_mass
        return string

    def move_window(self, num_tokens: int) -> "TokenString":
        """The string cut to its root and its last tokens, in all at most `num_tokens`. It keeps its mass."""
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
        """Sets the mass of this string from its parent's row. The string is one token longer than its parent."""
        assert self.parent is not None, "a root has no parent to weigh it by"
        assert self.parent.log_probs is not None, "the parent has been read"
        [token_id] = self.token_ids
        self.log_mass = self.parent.get_log_mass() + float(self.parent.log_probs[rank[token_id]])

    def get_log_mass(self) -> float:
        """`log_mass`, which must be known."""
        assert self.log_mass is not None, "a string is weighed once its parent has been read"
        return self.log_mass

    def find_ancestor(self, count: int) -> "TokenString":
        """The string without its last `count` tokens; without fewer, where the others were added many at once."""
        string = self
        while self.num_tokens - string.num_tokens < count and len(string.token_ids) == 1 and string.parent:
            string = string.parent
        return string

    def begins_with(self, other: "TokenString") -> bool:
        """True where it is the other string or an extension of it."""
        string: TokenString | None = self
        while string is not None and string.num_tokens > other.num_tokens:
            string = string.parent
        return string is other

    def find_tokens_since(self, beginning: "TokenString") -> tuple[int, ...]:
        """The tokens that it adds to its beginning."""
        parts = []
        string: TokenString | None = self
        while string is not None and string is not beginning:
            parts.append(string.token_ids)
            string = string.parent
        return tuple([token_id for part in reversed(parts) for token_id in part])


class TokenReader(Protocol):
    """A model that gives next-token distributions after token strings with a common beginning."""

    max_tokens: int  # in a string

    def read(self, strings: Sequence[TokenString]) -> None:
        """Fills `log_probs` and `log_end` of the strings, in one forward pass over their unread tokens.

        The probabilities sum to one: special tokens are left out, except those that end the text.
        """
        ...


def read_all(reader: TokenReader, strings: Iterable[TokenString]) -> None:
    """Reads those of the strings that have no row, in one forward pass."""
    unread = [string for string in strings if string.log_probs is None]
    if unread:
        reader.read(unread)
