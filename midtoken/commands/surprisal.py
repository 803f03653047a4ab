"""Show the surprisal of each character of a text, in bits."""

import argparse
import json
import math
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from inference.errors import InvalidRequestError
from midtoken.answer import show_char
from midtoken.input_text import ClearedText, add_text_arguments
from midtoken.served_model import open_model

# By the bits from which on they are used. In full, because a terminal's theme may change the named colour black.
_STYLES = {
    16.0: "#000000 on #dc4650",
    8.0: "#000000 on #e65c4c",
    4.0: "#000000 on #f4844a",
    2.0: "#000000 on #fdb24c",
    1.0: "#000000 on #ffdd7c",
    0.5: "#000000 on #fff7c8",
}


def paint(text: bytes, surprisals: Sequence[float]) -> Text:
    """Returns the text with each character in the colour of its surprisal, which is the sum over its bytes.

    `surprisals`: of each byte, in bits. A line end is marked only if it has a colour.
    """
    painted, start = Text(), 0
    for char in text.decode(errors="surrogateescape"):
        end = start + len(char.encode(errors="surrogateescape"))
        style = find_style(math.fsum(surprisals[start:end]))
        painted.append(_show(char, is_marked=bool(style)), style)
        start = end
    return painted


def find_style(bits: float) -> str:
    """Returns the style for a surprisal; empty if it is below the first colour."""
    return next((style for lowest, style in _STYLES.items() if bits >= lowest), "")


def _show(char: str, is_marked: bool) -> str:
    if char == "\n":
        return "⏎\n" if is_marked else "\n"
    return char if char == "\t" else show_char(char)


def _build_legend() -> Text:
    steps = ((f" {bits:g}+ ", style) for bits, style in reversed(_STYLES.items()))
    return Text.assemble(("bits for a character  ", "dim"), *steps)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument("file", metavar="FILE", help="the text; - reads standard input")
    parser.add_argument(
        "--json", action="store_true", help="print the surprisal of each byte as JSON; null means infinite"
    )
    add_text_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the text in colour, or the surprisals as JSON."""
    cleared = ClearedText(options)
    text = cleared.read_file(options.file)
    if not text:
        raise InvalidRequestError(f"{options.file} is empty; there is no surprisal to show")
    with open_model(options, cleared) as model:
        surprisals = model.surprisal(text)
    bits = math.fsum(surprisals)
    if options.json:
        numbers = [each if math.isfinite(each) else None for each in surprisals]
        print(json.dumps({"file": options.file, "surprisals": numbers}))
    else:
        console = Console(highlight=False)
        console.print(paint(text, surprisals), soft_wrap=True)
        console.print(_build_legend())
        summary = f"{len(surprisals):,} bytes, {bits / len(surprisals):.3f} bits per byte, {bits:,.0f} bits in total"
        console.print(f"{options.file}: {summary}", style="dim", soft_wrap=True, markup=False)
    return 0
