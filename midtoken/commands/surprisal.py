"""Show the surprisal of each character of a text, in bits."""

import argparse
import asyncio
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from inference.errors import InvalidRequestError
from inference.protocol.characters import Ask, CharacterRequest, Surprisals
from lsp_server.privacy.guard import Cleared
from midtoken.answer import Grapheme, check_kind, split_graphemes
from midtoken.connection import open_connection
from midtoken.input_text import ClearedText, add_text_arguments, split_pieces

ScoredLine = Sequence[tuple[Grapheme, float]]  # with its line end, and for each grapheme the sum over its bytes

# By the bits from which on they are used. In full, because a terminal's theme may change the named colour black.
_STYLES = {
    16.0: "#000000 on #dc4650",
    8.0: "#000000 on #e65c4c",
    4.0: "#000000 on #f4844a",
    2.0: "#000000 on #fdb24c",
    1.0: "#000000 on #ffdd7c",
    0.5: "#000000 on #fff7c8",
}
_TAB_CELLS = 8


def score_lines(text: bytes, surprisals: Sequence[float]) -> Iterator[ScoredLine]:
    """Yields the lines in order. `surprisals`: of each byte, in bits."""
    line: list[tuple[Grapheme, float]] = []
    for grapheme in split_graphemes(text):
        line.append((grapheme, math.fsum(surprisals[grapheme.start : grapheme.start + grapheme.num_bytes])))
        if grapheme.ends_line:
            yield line
            line = []
    if line:
        yield line


def find_style(bits: float) -> str:
    """Returns the style for a surprisal; empty if it is below the first colour."""
    return next((style for lowest, style in _STYLES.items() if bits >= lowest), "")


def paint_line(line: ScoredLine) -> Text:
    """Returns the line with each grapheme in its colour. The line end is shown only if it has a colour."""
    text = Text()
    for grapheme, bits in line:
        style = find_style(bits)
        if style or not grapheme.ends_line:
            text.append(_expand_tab(grapheme, text), style)
    return text


def build_legend() -> Text:
    """Returns the legend of the colours."""
    steps = ((f" {bits:g}+ ", style) for bits, style in reversed(_STYLES.items()))
    return Text.assemble(("bits for a character  ", "dim"), *steps)


def _expand_tab(grapheme: Grapheme, before: Text) -> str:
    return " " * (_TAB_CELLS - cell_len(before.plain) % _TAB_CELLS) if grapheme.chars == "\t" else grapheme.shown


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
    parser.add_argument(
        "--context", metavar="FILE", help="a file with the text that comes before; it is read but not scored"
    )
    add_text_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the text in colour, or as lines for other programs."""
    cleared = ClearedText(options)
    whole, context = cleared.read_file(options.file), cleared.read_file(options.context)
    requests = (cleared.clear(replace(each, ask=Ask.SURPRISAL)) for each in split_pieces(whole, context))
    first = next(requests, None)  # refused, if it is, before a server is started
    if first is None:
        raise InvalidRequestError(f"{options.file} is empty; there is no surprisal to show")
    text, surprisals = asyncio.run(_ask(options, chain([first], requests), len(whole)))
    if options.json:
        print(json.dumps(_describe(options, surprisals)))
    else:
        _print(options.file, text, surprisals)
    return 0


def format_line(number: int, line: ScoredLine) -> str:
    """Returns a line's bits per byte, its number and the line itself, separated by tabs."""
    bits_per_byte = math.fsum(bits for _, bits in line) / sum(grapheme.num_bytes for grapheme, _ in line)
    shown = "".join(grapheme.shown for grapheme, _ in line if not grapheme.ends_line)
    return f"{bits_per_byte:.3f}\t{number}\t{shown}"


async def _ask(
    options: argparse.Namespace, requests: Iterator[Cleared[CharacterRequest]], num_bytes: int
) -> tuple[bytes, list[float]]:
    """Returns what was sent, and the surprisal of each of its bytes."""
    text, surprisals = b"", list[float]()
    async with open_connection(options) as connection:
        with Console(stderr=True).status("") as status:
            while (request := await asyncio.to_thread(next, requests, None)) is not None:  # it asks about the rules
                status.update(f"{len(surprisals):,} of {num_bytes:,} bytes read …")
                surprisals += check_kind(await connection.ask(request), Surprisals).surprisals
                text += request.value.text
    return text, surprisals


def _print(name: str, text: bytes, surprisals: Sequence[float]) -> None:
    console, lines, bits = Console(highlight=False), score_lines(text, surprisals), math.fsum(surprisals)
    summary = f"{name}: {len(text):,} bytes, {bits / len(text):.3f} bits per byte, {bits:,.0f} bits in total"
    if console.is_terminal and console.color_system:
        for line in lines:
            console.print(paint_line(line), soft_wrap=True)
        console.print("", build_legend(), sep="\n")
        console.print(summary, style="dim", soft_wrap=True, markup=False)
    else:
        print(*(format_line(number, line) for number, line in enumerate(lines, 1)), sep="\n")
        print(summary, file=sys.stderr)


def _describe(options: argparse.Namespace, surprisals: Sequence[float]) -> dict[str, Any]:
    return {
        "file": options.file,
        "num_bytes": len(surprisals),
        "bits_per_byte": _to_json(math.fsum(surprisals) / len(surprisals)),
        "surprisals": [_to_json(bits) for bits in surprisals],
    }


def _to_json(bits: float) -> float | None:
    return bits if math.isfinite(bits) else None
