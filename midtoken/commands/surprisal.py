"""Show how many bits each character of a text costs the model."""

import argparse
import asyncio
import json
import math
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from inference.errors import InvalidRequestError, MidtokenError, ServerError
from inference.protocol.characters import Ask, Surprisals
from midtoken.arguments.covering import add_covering_arguments, build_request, read_context, read_file
from midtoken.commands.pieces import split_pieces
from midtoken.connection import add_connection_arguments, open_connection
from midtoken.display.heat import build_legend, paint_line
from midtoken.display.reading import Reading

_DESCRIPTION = """In a terminal the text is coloured by its surprisal; a character has the bits of all its bytes.
Elsewhere each line of the text is a line of three columns between tabs: bits per byte, line number, text; so that
`midtoken surprisal FILE | sort -rn | head` finds the least expected lines. NO_COLOR=1 and FORCE_COLOR=1 choose."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.description = f"{parser.description} {_DESCRIPTION}"
    parser.add_argument("file", metavar="FILE", help="a text; - reads standard input")
    parser.add_argument("--json", action="store_true", help="print the bits of each byte as JSON; null: impossible")
    parser.add_argument("--plot", type=_parse_picture, metavar="PICTURE", help="draw it too: .svg, .png, .pdf")
    add_covering_arguments(parser)
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the text in colours, or lines for other programs."""
    draw = _find_plotter() if options.plot else None
    text, context = read_file(options.file), read_context(options)
    if not text:
        raise InvalidRequestError(f"{options.file} is empty; surprisal is about its bytes")
    reading = Reading(options.file, text, asyncio.run(_ask(options, text, context)))
    if options.json:
        print(json.dumps(_describe(options, reading)))
    else:
        _print(reading)
    if draw is not None:
        draw(reading, options.plot)
    return 0


def format_lines(reading: Reading) -> Iterator[str]:
    """For each line of the text its bits per byte, its number and itself, with tabs between."""
    for line in reading.split_lines():
        shown = "".join(glyph.shown for glyph in line.glyphs if not glyph.ends_line)
        yield f"{line.bits_per_byte:.3f}\t{line.number}\t{shown}"


def _parse_picture(name: str) -> Path:
    path = Path(name)
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise argparse.ArgumentTypeError(f"a picture ends in .svg, .png or .pdf, not {name!r}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path


def _find_plotter() -> Callable[[Reading, Path], None]:
    try:
        from midtoken.display.surprisal_plot import draw_surprisals  # here, because matplotlib is optional
    except ImportError:
        raise MidtokenError(
            f"--plot needs matplotlib, which the extra `plot` brings: {sys.executable} -m pip install 'matplotlib>=3.9'"
        ) from None
    return draw_surprisals


async def _ask(options: argparse.Namespace, text: bytes, context: bytes) -> tuple[float, ...]:
    requests = (
        build_request(options, piece.text, context=piece.context, ask=Ask.SURPRISAL)
        for piece in split_pieces(text, context)
    )
    first = next(requests)  # what is wrong with it is said before a server starts
    surprisals: list[float] = []
    async with open_connection(options) as connection:
        with Console(stderr=True).status("") as status:
            for request in chain([first], requests):
                status.update(f"{len(surprisals):,} of {len(text):,} bytes are read …")
                answer = await connection.ask(request)
                if not isinstance(answer, Surprisals):
                    raise ServerError("the server has answered another question")
                surprisals += answer.surprisals
    return tuple(surprisals)


def _print(reading: Reading) -> None:
    console = Console(highlight=False)
    summary = (
        f"{reading.name}: {len(reading.text):,} bytes, {reading.bits_per_byte:.3f} bits for each, "
        f"{reading.total_bits:,.0f} in all"
    )
    if console.is_terminal and console.color_system:
        for line in reading.split_lines():
            console.print(paint_line(line), soft_wrap=True)
        console.print()
        console.print(build_legend())
        console.print(summary, style="dim", soft_wrap=True, markup=False)
    else:
        for row in format_lines(reading):
            print(row)
        print(summary, file=sys.stderr)


def _describe(options: argparse.Namespace, reading: Reading) -> dict[str, Any]:
    return {
        "file": reading.name,
        "covering": options.covering,
        "num_bytes": len(reading.text),
        "bits_per_byte": _to_json(reading.bits_per_byte),
        "surprisals": [_to_json(bits) for bits in reading.surprisals],
    }


def _to_json(bits: float) -> float | None:
    return bits if math.isfinite(bits) else None
