"""Print the completion at a cursor."""

import argparse
import asyncio
import sys

from inference.protocol.completion import CompletionRequest, Extent, Healing
from lsp_server.context import Context
from lsp_server.privacy.guard import Cleared
from midtoken.answer import CONFIDENCE, Answer, read_answer
from midtoken.connection import open_connection
from midtoken.front.indented import send_blanks, write_tabs
from midtoken.input_text import ClearedText, add_cursor_arguments


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
        "--max-tokens", type=int, default=64, metavar="N", help="generate at most this many (default: %(default)s)"
    )
    add_cursor_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the completion on stdout, and how much of it an editor shows on stderr if that is a terminal."""
    text = ClearedText(options)
    request = build_request(options, text.read_cursor(options.cursor, options.stdin))
    answer = asyncio.run(_ask(options, text, request, text.clear(send_blanks(request))))
    print(answer.text)
    if sys.stderr.isatty():
        print(_describe(answer), file=sys.stderr)
    return 0


def build_request(options: argparse.Namespace, cursor: Context) -> CompletionRequest:
    """Builds the request for a completion at the cursor. Raises InvalidRequestError."""
    return CompletionRequest(
        cursor.prefix,
        suffix=cursor.suffix,
        max_tokens=options.max_tokens,
        healing=Healing(options.healing),
        extent=Extent(options.extent),
    )


async def _ask(
    options: argparse.Namespace, text: ClearedText, request: CompletionRequest, cleared: Cleared[CompletionRequest]
) -> Answer:
    async with open_connection(options) as connection:
        text.note_languages(connection.languages)
        return await read_answer(write_tabs(connection.stream(cleared), request))


def _describe(answer: Answer) -> str:
    num_shown, num_chars = answer.likely.count_likely(0, CONFIDENCE), len(answer.text)
    shown = "all" if num_shown == num_chars else f"{num_shown} of {num_chars} characters"
    return f"{answer.stats.total_ms:.0f} ms; an editor shows {shown}"
