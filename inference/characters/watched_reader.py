"""A reader that tells of its forward passes, so that a long question can be watched and stopped between two of them."""

from collections.abc import Sequence
from typing import Protocol

from inference.characters.token_string import TokenReader, TokenString


class PassWatch(Protocol):
    """Is told of each forward pass."""

    def begin_pass(self) -> None:
        """A pass is about to begin. Raises where it should not."""
        ...

    def end_pass(self) -> None:
        """The pass is over."""
        ...


class WatchedReader:
    """The same as `reader`, with a watch on its forward passes."""

    def __init__(self, reader: TokenReader, watch: PassWatch) -> None:
        self.max_tokens = reader.max_tokens
        self._reader = reader
        self._watch = watch

    def read(self, strings: Sequence[TokenString]) -> None:
        """Fills `log_probs` and `log_end` of the strings in one forward pass. Raises what the watch raises, first."""
        self._watch.begin_pass()
        self._reader.read(strings)
        self._watch.end_pass()
