"""The arguments of requests to the character-level model."""

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
        help="which tokenizations of the text count: the tokenizer's own and likely others (canonical), all, by beam "
        "search (beam), all, for up to 16 bytes (enumerate), or the tokenizer's own with its last token open (single) "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--width",
        type=int,
        default=_DEFAULTS.width,
        help="with --covering beam: how many bundles of tokenizations are kept at each byte (default: %(default)s)",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=_DEFAULTS.threshold,
        help="drop tokenizations that have a smaller share of the probability than this. With beam, this applies to "
        "all of them (default: 0); with canonical, to those that the tokenizer would not produce (default: 0.1)",
    )
    parser.add_argument(
        "--context", metavar="FILE", help="a file with the text that comes before; it is read but not scored"
    )


def build_request(options: argparse.Namespace, text: bytes, **fields: Any) -> CharacterRequest:
    """Builds the request for `text` with the covering that the options choose. Raises InvalidRequestError."""
    covering = CoveringKind(options.covering)
    return CharacterRequest(text, covering=covering, width=options.width, threshold=options.threshold, **fields)


def read_context(options: argparse.Namespace) -> bytes:
    """Returns the content of the file that `--context` names; empty without the option. Raises UnreadableFileError."""
    return b"" if options.context is None else read_file(options.context)
