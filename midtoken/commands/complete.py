"""Print the completion at a cursor."""

import argparse
import sys

from inference.protocol.completion import MAX_NEW_TOKENS, Extent, Healing
from lsp_server.indentation import find_unit, match_indentation, write_blanks
from midtoken.answer import CONFIDENCE
from midtoken.connection import open_model
from midtoken.input_text import ClearedText, add_cursor_arguments
from midtoken.server_arguments import number_from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument(
        "--healing",
        choices=[str(healing) for healing in Healing],
        default=str(Healing.EXACT),
        help="the healing strategy: exact, or for comparison greedy (mask each token), single (one token removed) or "
        "none (default: exact)",
    )
    parser.add_argument(
        "--extent",
        choices=[str(extent) for extent in Extent],
        default=str(Extent.AUTO),
        help="how far the completion may go; auto is block if the cursor opens one, otherwise single_line "
        "(default: auto)",
    )
    parser.add_argument(
        "--max-tokens",
        type=number_from(1, MAX_NEW_TOKENS),
        default=64,
        metavar="N",
        help="generate at most this many (default: %(default)s)",
    )
    add_cursor_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the completion on stdout, and how much of it an editor shows on stderr if that is a terminal."""
    text = ClearedText(options)
    cursor = text.read_cursor(options.cursor, options.stdin)
    sent = write_blanks(cursor)  # as a language server does
    with open_model(options, text) as model:
        found = model.complete(
            sent.prefix, sent.suffix, options.healing, max_tokens=options.max_tokens, extent=options.extent
        )
    has_tabs = find_unit(cursor) == "\t"
    print(match_indentation(found.text, cursor) if has_tabs else found.text)
    if sys.stderr.isatty():
        num_shown, num_chars = len(found.cut(CONFIDENCE)), len(found.text)
        shown = "all" if num_shown == num_chars else f"{num_shown} of {num_chars} characters"
        print(f"{found.stats.total_ms:.0f} ms; an editor shows {shown}", file=sys.stderr)
    return 0
