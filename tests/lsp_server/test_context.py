"""The text of a document that is sent."""

import itertools

from hypothesis import assume, given
from hypothesis import strategies as st
from lsprotocol.types import Position, TextDocumentItem

from lsp_server.context import Context
from lsp_server.documents import Document, num_units, split_lines
from lsp_server.session import build_editor_request
from lsp_server.settings import Settings

_SMALL = Settings(context=32)


def open_document(text: str) -> Document:
    return Document(TextDocumentItem("file:///a.py", "python", 0, text))


def clean(text: str) -> str:
    r"""Returns `text` as it is sent: \n as the only line end, and no lone surrogates."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def num_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@st.composite
def cursors(draw: st.DrawFn) -> tuple[str, str]:
    """The text before and after a cursor."""
    text = draw(st.lists(st.text("ab\r\né漢😀\ud83d", max_size=60), max_size=12).map("".join))
    index = draw(st.integers(0, len(text)))
    before, after = text[:index], text[index:]
    # No editor has a cursor inside a line end.
    assume(not (before.endswith("\r") and after.startswith("\n")))
    return before, after


@given(cursors(), st.integers(0, 60))
def test_context_is_the_text_around_the_cursor_within_its_limits_and_half_full_if_lines_are_short(
    cursor: tuple[str, str], anchor: int
) -> None:
    before, after = cursor
    document, lines = open_document(before + after), split_lines(before)
    document.anchor_line = min(anchor, len(document.lines) - 1)
    position = Position(len(lines) - 1, num_units(lines[-1]))
    context = build_editor_request(document, position, _SMALL).context
    assert clean(before).endswith(context.head + context.prefix)
    assert clean(after).replace("\n", "").startswith((context.suffix + context.tail).replace("\n", ""))
    assert (context.head != "") >= (context.prefix != clean(before))
    assert (context.tail != "") >= (context.suffix != clean(after))
    assert num_bytes(context.prefix) <= _SMALL.prefix_bytes
    assert num_bytes(context.suffix) <= _SMALL.suffix_bytes
    assert clean(before).endswith(context.prefix)
    assert clean(after).startswith(context.suffix)
    assert (context.prefix == "", context.suffix == "") == (before == "", after == "")
    if document.anchor_line > 0 and all(num_bytes(line) <= _SMALL.prefix_bytes // 4 for line in lines):
        line_more = "".join(document.lines[document.anchor_line - 1 : len(lines) - 1]) + lines[-1]
        assert num_bytes(line_more) > _SMALL.prefix_bytes // 2


def test_a_small_document_is_sent_completely() -> None:
    assert build_editor_request(open_document("a\r\nbc\rd"), Position(1, 1), _SMALL).context == Context("a\nb", "c\nd")


def test_context_starts_and_ends_at_line_ends() -> None:
    line = "0123456789\n"
    context = build_editor_request(open_document(line * 100), Position(50, 5), _SMALL).context
    assert context.prefix.removesuffix("01234") == line * (len(context.prefix) // len(line))
    assert context.suffix.removeprefix("56789\n") == line * (len(context.suffix) // len(line))
    assert min(len(context.prefix), len(context.suffix)) > 2 * len(line)


def test_prefix_start_moves_in_large_blocks_while_lines_are_typed() -> None:
    num_lines = 1000
    document = open_document("0123456789\n" * num_lines)
    starts = []
    for line in range(100, num_lines):
        build_editor_request(document, Position(line, 0), _SMALL)
        starts.append(document.anchor_line)
    num_moves = sum(start != after for start, after in itertools.pairwise(starts))
    assert num_moves <= len(starts) / (256 // 4 // len("0123456789\n"))


def test_a_very_long_line_is_cut_at_the_same_place_for_many_keystrokes() -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(3000))
    starts = set()
    for character in range(2000, 2064):
        prefix = build_editor_request(open_document(text), Position(0, character), _SMALL).context.prefix
        starts.add(character - len(prefix))
    assert len(starts) <= 2
