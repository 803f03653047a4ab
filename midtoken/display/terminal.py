"""Output for terminals only. Nothing is written if the output goes to a file or a pipe."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

# rich is imported inside the functions, because importing it takes as long as a completion.
_WAITING = "waiting for the completion server (its first start takes some seconds) …"


@contextmanager
def show_waiting() -> Iterator[None]:
    """While the block runs, shows on stderr that the command waits for its server."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(_WAITING):
        yield


def print_dim(text: str, stream: TextIO) -> None:
    """Prints the text dimmed, without a line end, if the stream is a terminal."""
    if stream.isatty():
        from rich.console import Console

        Console(file=stream).print(text, end="", style="dim", markup=False, highlight=False)
