"""The arguments from which subcommands make their requests to the character-level model."""

import argparse
from typing import Any

from inference.protocol.characters import CharacterRequest, CoveringKind
from midtoken.arguments.text_file import read_file

_DEFAULTS = CharacterRequest(b"")


def add_character_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--covering`, `--width`, `--threshold` and `--context`."""
    parser.add_argument(
        "--covering",
        choices=[str(kind) for kind in CoveringKind],
        default=str(_DEFAULTS.covering),
        help="which tokenizations of the text count (default: %(default)s)",
    )
    parser.add_argument(
        "--width",
        type=int,
        default=_DEFAULTS.width,
        help="with beam: how many tokenizations are kept at each byte (default: %(default)s)",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=_DEFAULTS.threshold,
        help="a tokenization with a smaller share of the probability is dropped: with beam, any (default 0); with "
        "canonical, one that the tokenizer itself would not produce (default 0.1)",
    )
    parser.add_argument(
        "--context", metavar="FILE", help="a file with the text before; its own probability does not count"
    )


def build_request(options: argparse.Namespace, text: bytes, **fields: Any) -> CharacterRequest:
    """The request about `text` with the covering that the options choose. Raises InvalidRequestError."""
    covering = CoveringKind(options.covering)
    return CharacterRequest(text, covering=covering, width=options.width, threshold=options.threshold, **fields)


def read_context(options: argparse.Namespace) -> bytes:
    """The file that `--context` names; empty without one. Raises UnreadableFileError."""
    return b"" if options.context is None else read_file(options.context)
