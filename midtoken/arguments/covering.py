"""The arguments by which a subcommand says how the character-level model reads a text."""

import argparse
import sys
from pathlib import Path
from typing import Any

from inference.errors import MidtokenError
from inference.protocol.characters import CharacterRequest, CoveringKind

_DEFAULTS = CharacterRequest(b"")


class UnreadableFileError(MidtokenError):
    """A file cannot be read. The text says which and why."""


def add_covering_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--covering` and its like, and `--context`."""
    parser.add_argument(
        "--covering",
        choices=[str(kind) for kind in CoveringKind],
        default=str(_DEFAULTS.covering),
        help="which tokenizations of the text count (default: %(default)s)",
    )
    parser.add_argument(
        "--width", type=int, default=_DEFAULTS.width, help="with beam: how many are followed (default: %(default)s)"
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=_DEFAULTS.threshold,
        help="tokenizations less likely than this are not followed: with beam (default 0), and with canonical those "
        "that the tokenizer would not write (default 0.1)",
    )
    parser.add_argument("--context", metavar="FILE", help="what stands before the text, taken as given")


def build_request(options: argparse.Namespace, text: bytes, **fields: Any) -> CharacterRequest:
    """The request about `text` with the covering of the options. Raises InvalidRequestError."""
    covering = CoveringKind(options.covering)
    return CharacterRequest(text, covering=covering, width=options.width, threshold=options.threshold, **fields)


def read_context(options: argparse.Namespace) -> bytes:
    """The file that `--context` names. Raises UnreadableFileError."""
    return b"" if options.context is None else read_file(options.context)


def read_file(name: str) -> bytes:
    """The file's bytes; those of standard input for `-`. Raises UnreadableFileError."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UnreadableFileError(f"cannot read {name}: {error.strerror}") from None
