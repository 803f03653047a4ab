"""Show the surprisal of each character of a text, in bits."""

import argparse
import asyncio
import json
import math
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

from rich.console import Console

from inference.errors import InvalidRequestError
from inference.protocol.characters import Ask, Surprisals
from lsp_server.privacy.guard import Cleared
from midtoken.answer import check_kind
from midtoken.cleared_text import ClearedText, add_rule_arguments
from midtoken.connection import open_connection
from midtoken.input_text import add_character_arguments, build_request, split_pieces
from midtoken.scored_text import ScoredText, build_legend, paint_line
from midtoken.server_arguments import add_connection_arguments

_DESCRIPTION = """A terminal shows the text coloured by its surprisal. The surprisal of a character is the sum over its
bytes. Elsewhere, or with NO_COLOR=1, each line of the text becomes three columns, separated by tabs: bits per byte,
line number, text. So `midtoken surprisal FILE | sort -rn | head` prints the lines with the highest surprisal.
FORCE_COLOR=1 always colours the text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.description = f"{parser.description} {_DESCRIPTION}"
    parser.add_argument("file", metavar="FILE", help="the text; - reads standard input")
    parser.add_argument(
        "--json", action="store_true", help="print the surprisal of each byte as JSON; null means infinite"
    )
    add_character_arguments(parser)
    add_rule_arguments(parser)
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the text in colour, or as lines for other programs."""
    cleared = ClearedText(options)
    text, context = cleared.read_file(options.file), cleared.read_file(options.context)
    if not text.value:
        raise InvalidRequestError(f"{options.file} is empty; there is no surprisal to show")
    scored = ScoredText(options.file, text.value, asyncio.run(_ask(options, text, context)))
    if options.json:
        print(json.dumps(_describe(options, scored)))
    else:
        _print(scored)
    return 0


def format_lines(scored: ScoredText) -> Iterator[str]:
    """Yields for each line of the text: its bits per byte, its number and the line itself, separated by tabs."""
    for line in scored.split_lines():
        shown = "".join(grapheme.shown for grapheme in line.graphemes if not grapheme.ends_line)
        yield f"{line.bits_per_byte:.3f}\t{line.number}\t{shown}"


async def _ask(options: argparse.Namespace, text: Cleared[bytes], context: Cleared[bytes]) -> tuple[float, ...]:
    requests = text.split(
        lambda text: (build_request(options, each, ask=Ask.SURPRISAL) for each in split_pieces(text, context.value))
    )
    first = next(requests)  # refuses an invalid request before a server is started
    surprisals: list[float] = []
    async with open_connection(options) as connection:
        with Console(stderr=True).status("") as status:
            for request in chain([first], requests):
                status.update(f"{len(surprisals):,} of {len(text.value):,} bytes read …")
                surprisals += check_kind(await connection.ask(request), Surprisals).surprisals
    return tuple(surprisals)


def _print(scored: ScoredText) -> None:
    console = Console(highlight=False)
    summary = (
        f"{scored.name}: {len(scored.text):,} bytes, {scored.bits_per_byte:.3f} bits per byte, "
        f"{scored.total_bits:,.0f} bits in total"
    )
    if console.is_terminal and console.color_system:
        for line in scored.split_lines():
            console.print(paint_line(line), soft_wrap=True)
        console.print()
        console.print(build_legend())
        console.print(summary, style="dim", soft_wrap=True, markup=False)
    else:
        for row in format_lines(scored):
            print(row)
        print(summary, file=sys.stderr)


def _describe(options: argparse.Namespace, scored: ScoredText) -> dict[str, Any]:
    return {
        "file": scored.name,
        "covering": options.covering,
        "num_bytes": len(scored.text),
        "bits_per_byte": _to_json(scored.bits_per_byte),
        "surprisals": [_to_json(bits) for bits in scored.surprisals],
    }


def _to_json(bits: float) -> float | None:
    return bits if math.isfinite(bits) else None
