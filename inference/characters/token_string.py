"""Token strings that share their beginnings, and what a model says after each."""

from collections.abc import Iterable, Sequence
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]


class TokenString:
    """A token string, as what it adds to a shorter one. It is forgotten with the last reference to it.

    Extended twice by the same token it is the same object, so strings are compared by identity.
    """

    __slots__ = ("__weakref__", "_children", "log_end", "log_mass", "log_probs", "num_tokens", "parent", "token_ids")

    def __init__(self, token_ids: tuple[int, ...], parent: "TokenString | None" = None) -> None:
        """`extend` makes all but the first."""
        self.token_ids = token_ids  # what it adds to `parent`; at least one
        self.parent = parent
        self.num_tokens: int = len(token_ids) + (parent.num_tokens if parent else 0)
        self.log_mass: float | None = None  # log probability of the string and all that goes on from it, once known
        self.log_probs: Floats | None = None  # [num_tokens of the trie], by rank: of each token to follow, once read
        self.log_end = -np.inf  # of the text to end here
        self._children: WeakValueDictionary[int, TokenString] = WeakValueDictionary()

    def extend(self, token_ids: Iterable[int]) -> "TokenString":
        """The string that goes on with these tokens."""
        string = self
        for token_id in token_ids:
            child = string._children.get(token_id)
            if child is None:
                child = string._children[token_id] = TokenString((token_id,), string)
            string = child
        return string

    def extend_at_once(self, token_ids: tuple[int, ...], num_tokens: int) -> "TokenString":
        """The string that goes on with the last of these tokens, `num_tokens` long at most; its mass is this one's."""
        kept = token_ids[-max(num_tokens - self.num_tokens, 1) :]
        if not kept:
            return self
        string = TokenString(kept, self)
        string.log_mass = self.log_mass
        return string

    def move_window(self, num_tokens: int) -> "TokenString":
        """The string without its oldest tokens, those of its root aside: `num_tokens` are left. It keeps its mass."""
        root = self
        while root.parent is not None:
            root = root.parent
        string = root.extend_at_once(self.find_tokens_since(root), num_tokens)
        string.log_mass = self.log_mass
        return string

    def move(self, old: "TokenString", new: "TokenString") -> "TokenString":
        """The string with `new` in the place of its beginning `old`."""
        string = new.extend(self.find_tokens_since(old))
        string.log_mass, string.log_end = self.log_mass, self.log_end
        return string

    def weigh_after_parent(self, rank: npt.NDArray[np.int32]) -> None:
        """Finds the mass of a string that is one token longer than one whose row is at hand."""
        assert self.parent is not None, "it is no root"
        assert self.parent.log_probs is not None, "the parent has been read"
        [token_id] = self.token_ids
        self.log_mass = self.parent.weigh() + float(self.parent.log_probs[rank[token_id]])

    def weigh(self) -> float:
        """`log_mass`, where it is known."""
        assert self.log_mass is not None, "strings are weighed when the one that they go on from has been read"
        return self.log_mass

    def find_ancestor(self, count: int) -> "TokenString":
        """The beginning that is `count` tokens shorter; no shorter than one that was made of many tokens at once."""
        string = self
        while self.num_tokens - string.num_tokens < count and len(string.token_ids) == 1 and string.parent:
            string = string.parent
        return string

    def begins_with(self, other: "TokenString") -> bool:
        """True where it is the other string, or goes on from it."""
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
    """A model that reads token strings which begin alike."""

    max_tokens: int  # of a string

    def read(self, strings: Sequence[TokenString]) -> None:
        """Fills `log_probs` and `log_end` of the strings, in one forward pass over what is new in them.

        They sum to one: tokens that spell nothing, other than the end of text, are left out.
        """
        ...


def read_all(reader: TokenReader, strings: Iterable[TokenString]) -> None:
    """Reads those of the strings whose rows are not at hand, in one forward pass if any."""
    unread = [string for string in strings if string.log_probs is None]
    if unread:
        reader.read(unread)
