"""Print the completion at a cursor."""

import argparse
import asyncio
import sys

from rich.console import Console

from inference.protocol.completion import CompletionChunk, CompletionRequest, Extent, Healing
from midtoken.arguments.place import Place, read_place
from midtoken.connection import add_connection_arguments, open_connection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("place", metavar="FILE:LINE:COL", help="the cursor; lines and columns count from 1")
    parser.add_argument("--healing", type=Healing, choices=list(Healing), default=Healing.EXACT, help="default: exact")
    parser.add_argument("--extent", type=Extent, choices=list(Extent), default=Extent.AUTO, help="default: auto")
    parser.add_argument("--max-tokens", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--ignore-suffix", action="store_true", help="leave out what stands after the cursor")
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the completion on stdout as it comes, and what it cost on stderr where that is a terminal."""
    place = read_place(options.place)
    request = CompletionRequest(
        place.near_prefix,
        suffix="" if options.ignore_suffix else place.near_suffix,
        max_tokens=options.max_tokens,
        healing=options.healing,
        extent=options.extent,
    )
    last = asyncio.run(_print_stream(options, request, place))
    errors = Console(stderr=True)
    if errors.is_terminal and last.stats is not None:
        errors.print(
            f"{last.stats.num_tokens} tokens, {last.stats.num_forwards} forward passes, {last.healed_bytes} bytes "
            f"healed, {last.stats.total_ms:.0f} ms, ended by: {last.finish_reason}",
            style="dim",
        )
    return 0


async def _print_stream(options: argparse.Namespace, request: CompletionRequest, place: Place) -> CompletionChunk:
    if sys.stdout.isatty():
        Console().print(place.line_before, end="", style="dim", markup=False, highlight=False)
    async with open_connection(options) as connection:
        async for chunk in connection.stream(request):
            print(chunk.text, end="", flush=True)
    print()
    return chunk
