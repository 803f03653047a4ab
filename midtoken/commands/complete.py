"""Print the completion at a cursor."""

import argparse
import asyncio
import sys

from inference.protocol.completion import CompletionChunk, CompletionRequest, Extent, Healing
from midtoken.arguments.place import Place, read_place
from midtoken.connection import add_connection_arguments, open_connection
from midtoken.display.terminal import print_dim


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument("place", metavar="FILE:LINE:COL", help="the cursor; lines and columns count from 1")
    parser.add_argument("--healing", type=Healing, choices=list(Healing), default=Healing.EXACT, help="default: exact")
    parser.add_argument("--extent", type=Extent, choices=list(Extent), default=Extent.AUTO, help="default: auto")
    parser.add_argument("--max-tokens", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--ignore-suffix", action="store_true", help="do not show the model the text after the cursor")
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the completion on stdout as it arrives, and on a terminal also the line before it and what it took."""
    place = read_place(options.place)
    request = build_request(options, place)
    last = asyncio.run(_print_stream(options, request, place))
    if last.stats is not None:
        cost = (
            f"{last.stats.num_tokens} tokens, {last.stats.num_forwards} forward passes, {last.healed_bytes} bytes "
            f"healed, {last.stats.total_ms:.0f} ms, ended by: {last.finish_reason}\n"
        )
        print_dim(cost, sys.stderr)
    return 0


def build_request(options: argparse.Namespace, place: Place) -> CompletionRequest:
    """The request for a completion at the place. Raises InvalidRequestError."""
    return CompletionRequest(
        place.near_prefix,
        suffix="" if options.ignore_suffix else place.near_suffix,
        max_tokens=options.max_tokens,
        healing=options.healing,
        extent=options.extent,
    )


async def _print_stream(options: argparse.Namespace, request: CompletionRequest, place: Place) -> CompletionChunk:
    print_dim(place.line_before, sys.stdout)
    async with open_connection(options) as connection:
        async for chunk in connection.stream(request):
            print(chunk.text, end="", flush=True)
    print()
    return chunk
