"""Reads a file that an argument names."""

import sys
from pathlib import Path

from midtoken.errors import UnreadableFileError


def read_file(name: str) -> bytes:
    """Returns the bytes of the file; of standard input if the name is `-`. Raises UnreadableFileError."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UnreadableFileError(f"cannot read {name}: {error.strerror}") from None
