"""A reader that reports its forward passes, so that a long request can be monitored and stopped between two of them."""

from collections.abc import Sequence
from typing import Protocol

from inference.characters.token_string import TokenReader, TokenString


class PassWatch(Protocol):
    """Receives a call before and after each forward pass."""

    def begin_pass(self) -> None:
        """Called before a pass. Raises to prevent it."""
        ...

    def end_pass(self) -> None:
        """Called after a pass."""
        ...


class WatchedReader:
    """Reads with `reader` and reports each forward pass to `watch`."""

    def __init__(self, reader: TokenReader, watch: PassWatch) -> None:
        self.max_tokens = reader.max_tokens
        self._reader = reader
        self._watch = watch

    def read(self, strings: Sequence[TokenString]) -> None:
        """Fills `log_probs` and `log_end` of the strings in one forward pass. Raises what `begin_pass` raises."""
        self._watch.begin_pass()
        self._reader.read(strings)
        self._watch.end_pass()
