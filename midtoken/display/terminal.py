"""What a command shows to a person at a terminal only, beside its output. Other programs never see it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

# rich is imported inside the functions: it takes as long to import as a completion takes.
_WAITING = "waiting for the completion server (its first start takes some seconds) …"


@contextmanager
def show_waiting() -> Iterator[None]:
    """Shows on stderr, while the block runs, that the command waits for its server."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(_WAITING):
        yield


def print_dim(text: str, stream: TextIO) -> None:
    """Prints the text dimmed. Adds no line end."""
    if stream.isatty():
        from rich.console import Console

        Console(file=stream).print(text, end="", style="dim", markup=False, highlight=False)
