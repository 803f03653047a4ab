"""A file that an argument names, as bytes."""

import sys
from pathlib import Path

from midtoken.errors import UnreadableFileError


def read_file(name: str) -> bytes:
    """The bytes of the file, or of standard input where the name is `-`. Raises UnreadableFileError."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UnreadableFileError(f"cannot read {name}: {error.strerror}") from None
