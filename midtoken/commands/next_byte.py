"""Show the distribution of the next byte after a text, and the tokenizations that predict it."""

import argparse
import dataclasses
import json
from collections.abc import Iterator

from inference.protocol.characters import END, CoveringMember, NextByte
from midtoken.answer import mark_blanks
from midtoken.input_text import ClearedText, add_text_arguments
from midtoken.served_model import open_model

_NUM_ROWS = 8  # of bytes, and of tokenizations


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `run` reads."""
    parser.add_argument("text", metavar="TEXT", help="the text before the byte; - reads standard input")
    parser.add_argument(
        "--json", action="store_true", help="print the probabilities of the 256 bytes and the end of text as JSON"
    )
    add_text_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the distribution, and the tokenizations that it is computed from."""
    cleared = ClearedText(options)
    text = cleared.read_end(options.text)
    with open_model(options, cleared) as model:
        answer = model.next_bytes(text, _NUM_ROWS)
    print(json.dumps(dataclasses.asdict(answer)) if options.json else "\n".join(render(answer)))
    return 0


def render(answer: NextByte) -> Iterator[str]:
    """Yields rows with the most probable bytes, and below them some with the most probable tokenizations."""
    yield "The next byte:"
    ranked = sorted(enumerate(answer.probabilities), key=lambda each: -each[1])[:_NUM_ROWS]
    yield from (_render_row(share, _name(byte)) for byte, share in ranked if share > 0)
    if answer.members:
        yield "The tokenizations that predict it, from the first token that may still change; ▏ is the end of the text:"
    yield from (_render_row(each.probability, _show(each)) for each in answer.members)


def _render_row(share: float, what: str) -> str:
    percent = f"{100 * share:.2f} %" if share >= 0.0001 else "<0.01 %"
    return f"{percent:>9}  {what}"


def _name(byte: int) -> str:
    if byte == END:
        return "end of text"
    return mark_blanks(chr(byte)) if byte < 0x80 else f"\\x{byte:02x}"


def _show(member: CoveringMember) -> str:
    """Returns the tokens with a line between them."""
    *before, last = member.tokens or ("",)
    typed = last.removesuffix(member.ahead)
    return "|".join(map(mark_blanks, [*before, typed])) + "▏" + (mark_blanks(last[len(typed) :]) or "and any token")
