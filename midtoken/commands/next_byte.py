"""Show the distribution of the next byte after a text, and the tokenizations that predict it."""

import argparse
import asyncio
import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console, Group
from rich.text import Text

from inference.protocol.characters import END, CharacterRequest, CoveringMember, NextByte
from lsp_server.privacy.guard import Cleared
from midtoken.answer import check_kind, mark_blanks
from midtoken.connection import open_connection
from midtoken.input_text import ClearedText, add_text_arguments, split_tail

_NUM_ROWS = 8  # of each table
_BAR_CELLS = 24
_NUM_CHARS_SHOWN = 60
_AHEAD_STYLE = "bold green"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument("text", metavar="TEXT", help="the text before the byte; - reads standard input")
    parser.add_argument(
        "--json", action="store_true", help="print the probabilities of the 256 bytes and the end of text as JSON"
    )
    add_text_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the distribution, and the tokenizations that it is computed from."""
    text = ClearedText(options)
    piece = dataclasses.replace(split_tail(text.read_end(options.text)), num_members=_NUM_ROWS)
    answer = asyncio.run(_ask(options, text.clear(piece)))
    if options.json:
        print(json.dumps(dataclasses.asdict(answer)))
    else:
        Console(highlight=False).print(render(piece.text, answer))
    return 0


def render(text: bytes, answer: NextByte) -> Group:
    """Returns rows with the most probable bytes, and below them some with the most probable tokenizations."""
    shown = mark_blanks(text.decode(errors="surrogateescape"))
    cut = "…" if len(shown) > _NUM_CHARS_SHOWN else ""
    rows = [Text.assemble(("after ", "dim"), cut, (shown[-_NUM_CHARS_SHOWN:] or "nothing", "bold")), Text()]
    rows.append(Text("The next byte", style="dim"))
    rows += (
        _render_row(answer.probabilities[byte], Text(_name(byte), _AHEAD_STYLE)) for byte in _rank(answer.probabilities)
    )
    if answer.members:
        title = "The tokenizations that predict it, from the first token that may still change"
        rows += [Text(), Text(title, style="dim")]
    rows += (_render_row(each.probability, _render_tokens(each)) for each in answer.members)
    return Group(*rows)


def _rank(probabilities: Sequence[float]) -> list[int]:
    """Returns the bytes that are the most likely to follow, most likely first; none that cannot follow."""
    ranked = sorted(range(len(probabilities)), key=lambda byte: -probabilities[byte])[:_NUM_ROWS]
    return [byte for byte in ranked if probabilities[byte] > 0]


def _name(byte: int) -> str:
    if byte == END:
        return "end of text"
    return mark_blanks(chr(byte)) if byte < 0x80 else f"\\x{byte:02x}"


async def _ask(options: argparse.Namespace, piece: Cleared[CharacterRequest]) -> NextByte:
    async with open_connection(options) as connection:
        return check_kind(await connection.ask(piece), NextByte)


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
    percent = f"{100 * share:.2f} %" if share >= 0.0001 else "<0.01 %"
    bar = "━" * round(_BAR_CELLS * share)
    return Text.assemble((f"{percent:>8}  ", "bold" if share > 0.1 else ""), (f"{bar:{_BAR_CELLS}}  ", "green"), what)
