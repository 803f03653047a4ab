"""Show the distribution of the next byte after a text, and the tokenizations that predict it."""

import argparse
import asyncio
import dataclasses
import json

from rich.cells import set_cell_size
from rich.console import Console, Group
from rich.text import Text

from inference.protocol.characters import MAX_MEMBERS, CharacterRequest, CoveringMember, NextByte
from lsp_server.privacy.guard import Cleared
from midtoken.answer import check_kind, mark_blanks, rank_bytes
from midtoken.connection import open_connection
from midtoken.input_text import ClearedText, add_text_arguments, split_line, split_tail
from midtoken.server_arguments import number_from

_BAR_CELLS, _NAME_CELLS = 24, 13
_NUM_CHARS_SHOWN = 60
_AHEAD_STYLE = "bold green"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("text", metavar="TEXT", nargs="?", help="the text before the byte; - reads standard input")
    source.add_argument(
        "--at", metavar="FILE:LINE:COL", help="use the text before this cursor; lines and columns count from 1"
    )
    parser.add_argument(
        "--top", type=number_from(1, MAX_MEMBERS), default=8, help="the rows of each table (default: %(default)s)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the probabilities of the 256 bytes and the end of text as JSON"
    )
    parser.add_argument("--context", metavar="FILE", help="a file with the text that comes before")
    add_text_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the distribution, and the tokenizations that it is computed from."""
    piece = _read_piece(options)
    answer = asyncio.run(_ask(options, piece))
    if options.json:
        print(json.dumps(dataclasses.asdict(answer)))
    else:
        Console(highlight=False).print(render(piece.value.text or piece.value.context, answer, options.top))
    return 0


def render(text: bytes, answer: NextByte, num_rows: int) -> Group:
    """Returns rows with the most probable bytes, and below them some with the most probable tokenizations."""
    shown = mark_blanks(text.decode(errors="surrogateescape"))
    cut = "…" if len(shown) > _NUM_CHARS_SHOWN else ""
    rows = [Text.assemble(("after ", "dim"), cut, (shown[-_NUM_CHARS_SHOWN:] or "nothing", "bold")), Text()]
    rows.append(Text("The next byte", style="dim"))
    for each in rank_bytes(answer.probabilities, text, num_rows):
        name = (set_cell_size(each.shown, _NAME_CELLS), _AHEAD_STYLE if each.note else "italic")
        rows.append(_render_row(each.share, Text.assemble(name, (each.note, "dim"))))
    if answer.members:
        title = "The tokenizations that predict it, from the first token that may still change"
        rows += [Text(), Text(title, style="dim")]
    rows += (_render_row(each.probability, _render_tokens(each)) for each in answer.members)
    return Group(*rows)


def _read_piece(options: argparse.Namespace) -> Cleared[CharacterRequest]:
    """Returns the text before the byte and its context. The text is the cursor's line, or the end of a long text."""
    text = ClearedText(options)
    context = text.read_file(options.context)
    if options.at is not None:
        piece = split_line(text.read_cursor(options.at).prefix, context)
    else:
        piece = split_tail(text.read_end(options.text), context)
    return text.clear(dataclasses.replace(piece, num_members=options.top))


async def _ask(options: argparse.Namespace, piece: Cleared[CharacterRequest]) -> NextByte:
    async with open_connection(options) as connection:
        answer = await connection.ask(piece)
    return check_kind(answer, NextByte)


def _render_tokens(member: CoveringMember) -> Text:
    tokens = list(member.tokens)
    text = Text()
    for index, token in enumerate(tokens):
        text.append("|" if index else "", style="dim")
        is_last = index + 1 == len(tokens)
        typed = token.removesuffix(member.ahead) if is_last else token
        text.append(mark_blanks(typed)).append(mark_blanks(token[len(typed) :]), style=_AHEAD_STYLE)
    return text if member.ahead else text.append("  then any token" if tokens else "any token", style="dim")


def _render_row(share: float, what: Text) -> Text:
    percent = f"{100 * share:.2f} %" if share >= 0.0001 else f"{share:.0e}"
    bar = "━" * round(_BAR_CELLS * share)
    return Text.assemble((f"{percent:>8}  ", "bold" if share > 0.1 else ""), (f"{bar:{_BAR_CELLS}}  ", "green"), what)
