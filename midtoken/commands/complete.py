"""Print the completion at a cursor."""

import argparse
import asyncio
import sys
from typing import TextIO

from inference.likely_text import LikelyText
from inference.protocol.completion import CompletionChunk, CompletionRequest, Extent, Healing
from lsp_server.context import Context
from lsp_server.privacy.guard import Cleared
from midtoken.answer import CONFIDENCE, find_style
from midtoken.connection import open_connection
from midtoken.input_text import ClearedText, add_text_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument("cursor", metavar="FILE:LINE:COL", help="the cursor; lines and columns count from 1")
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
    parser.add_argument("--max-tokens", type=int, default=64, help="generate at most this many (default: %(default)s)")
    parser.add_argument("--ignore-suffix", action="store_true", help="do not send the text after the cursor")
    add_text_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the completion on stdout as it arrives. A terminal also shows the line before it and the statistics."""
    text = ClearedText(options)
    cursor = text.read_cursor(options.cursor)
    request = text.clear(build_request(options, cursor))
    last, likely = asyncio.run(_print_stream(options, request, cursor.line_before))
    if last.stats is not None:
        end = likely.count_likely(0, CONFIDENCE)
        statistics = (
            f"{last.stats.num_tokens} tokens, {last.stats.num_forwards} forward passes, {last.healed_bytes} bytes "
            f"healed, {last.stats.total_ms:.0f} ms, ended by: {last.finish_reason}; "
            f"an editor shows {end} of {len(likely.text)} characters with confidence {CONFIDENCE}\n"
        )
        print_dim(statistics, sys.stderr)
    return 0


def build_request(options: argparse.Namespace, cursor: Context) -> CompletionRequest:
    """Builds the request for a completion at the cursor. Raises InvalidRequestError."""
    return CompletionRequest(
        cursor.prefix,
        suffix="" if options.ignore_suffix else cursor.suffix,
        max_tokens=options.max_tokens,
        healing=Healing(options.healing),
        extent=Extent(options.extent),
    )


async def _print_stream(
    options: argparse.Namespace, request: Cleared[CompletionRequest], line_before: str
) -> tuple[CompletionChunk, LikelyText]:
    likely = LikelyText()
    async with open_connection(options) as connection:
        print_dim(line_before, sys.stdout)  # not earlier: the notice of waiting clears its line when it ends
        async for chunk in connection.stream(request):
            likely.add(chunk)
            _print_part(chunk, likely)
    print()
    return chunk, likely


def _print_part(chunk: CompletionChunk, likely: LikelyText) -> None:
    """Prints a chunk, which has been added to `likely`. In a terminal its tokens fade with their probability."""
    tokens = [*likely.read_tokens(len(likely.text) - len(chunk.text))] if sys.stdout.isatty() else []
    for token in tokens:
        _print_styled(token.text, sys.stdout, find_style(token.text_log_prob))
    if not tokens:
        print(chunk.text, end="", flush=True)


def print_dim(text: str, stream: TextIO) -> None:
    """Prints the text dimmed, without a line end, if the stream is a terminal."""
    if stream.isatty():
        _print_styled(text, stream, "dim")


def _print_styled(text: str, stream: TextIO, style: str) -> None:
    from rich.console import Console  # here, because importing it takes as long as a completion

    Console(file=stream).print(text, end="", style=style, markup=False, highlight=False, soft_wrap=True)
