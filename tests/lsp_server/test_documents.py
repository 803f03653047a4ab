"""The documents' text, compared with a slow and simple oracle: the text as a list of the editor's units."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lsprotocol.types import (
    Position,
    Range,
    TextDocumentContentChangePartial,
    TextDocumentContentChangeWholeDocument,
    TextDocumentItem,
)

from lsp_server.documents import Client, Document, LineEnds, join_surrogates, num_units
from lsp_server.errors import OutOfSyncError

# Line ends of LSP and those that only Python knows, wide and astral characters.
_CHARACTERS = "ab\t\n\n\r\r\x0b\x0c\x1c\x85\u2028\u2029é漢😀\ufeff"
_HALVES = "\ud83d\ude00"
_LINE_END = re.compile("\r\n|\r|\n")
_LF = re.compile("\n")


class Oracle:
    """The text. Each edit encodes all of it, and counts positions from the start."""

    def __init__(self, text: str, line_end: re.Pattern[str] = _LINE_END) -> None:
        self.text, self.line_end = text, line_end

    def replace(self, span: Range, text: str) -> None:
        if span.end.line > 0 and "\n" not in self.text and "\r" in self.text:
            self.line_end = _LINE_END  # an editor that counts only \n would have one line
        encoded = _encode(self.text)
        changed = encoded[: self._find(span.start)] + _encode(text) + encoded[self._find(span.end) :]
        self.text = changed.decode("utf-16-le", "surrogatepass")

    def _find(self, position: Position) -> int:
        """Returns how many bytes are before a position."""
        starts = [0, *(match.end() for match in self.line_end.finditer(self.text))]
        if position.line >= len(starts):
            return len(_encode(self.text))
        before, line = self.text[: starts[position.line]], self.line_end.split(self.text)[position.line]
        if len(_encode(line)) < 2 * position.character:
            line = line.rstrip("\r")
        return len(_encode(before) + _encode(line)[: 2 * position.character])


def _encode(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def open_document(text: str, line_ends: LineEnds = LineEnds.LSP) -> Document:
    return Document(TextDocumentItem("file:///a.py", "python", 0, text), None, Client(line_ends))


def edit(line: int, character: int, num_lines: int, end: int, text: str) -> TextDocumentContentChangePartial:
    """Replaces what follows a position: up to the unit `end` some lines below, or `end` units of the same line."""
    last = Position(line + num_lines, end if num_lines else character + end)
    return TextDocumentContentChangePartial(range=Range(Position(line, character), last), text=text)


def edits(texts: st.SearchStrategy[str]) -> st.SearchStrategy[list[TextDocumentContentChangePartial]]:
    return st.lists(st.builds(edit, *[st.integers(0, 6)] * 4, texts), max_size=8)


def check(text: str, changes: Sequence[TextDocumentContentChangePartial], line_ends: LineEnds = LineEnds.LSP) -> None:
    document = open_document(text, line_ends)
    oracle = Oracle(text, _LF if line_ends is LineEnds.LF else _LINE_END)
    for change in changes:
        document.apply([change])
        oracle.replace(change.range, change.text)
        assert "".join(document.lines) == oracle.text
        assert [oracle.line_end.sub("", line) for line in document.lines] == oracle.line_end.split(oracle.text)


@given(st.text(_CHARACTERS, max_size=30), edits(st.text(_CHARACTERS, max_size=6)))
@example("a\rb\n", [edit(1, 0, 0, 1, "")])  # the remains of two line ends are one line end
@example("a\r", [edit(1, 0, 0, 0, "\n")])
@example("x\x0cy\u2028z\n1", [edit(1, 0, 0, 1, "2")])
def test_after_edits_the_text_equals_the_editors(text: str, changes: list[TextDocumentContentChangePartial]) -> None:
    check(text, changes)


@given(st.text("ab\r\r\né", max_size=20), edits(st.text("ab\r\né", max_size=6)))
@example('a = "l\rr"\ntot\n', [edit(1, 3, 0, 0, "al")])
@example("a\r\nb\n", [edit(0, 2, 0, 0, "x")])
@example("a\rb\r", [edit(1, 1, 0, 0, "x")])  # a file whose lines end with \r
def test_an_editor_that_ends_lines_with_lf_may_have_carriage_returns_in_them(
    text: str, changes: list[TextDocumentContentChangePartial]
) -> None:
    check(text, changes, LineEnds.LF)


@pytest.mark.parametrize(
    ("text", "is_known"), [("a\rb\rc", True), ("a\r\nb\nc", True), ("a\rb\nc", False), ("a\rb\r\n", False)]
)
def test_a_text_whose_lines_depend_on_an_unknown_editor_is_not_known(text: str, is_known: bool) -> None:
    document = open_document("", LineEnds.UNKNOWN)
    document.apply([edit(0, 0, 0, 0, text)])
    assert (document.problem is None) == is_known
    assert (open_document(text, LineEnds.UNKNOWN).problem is None) == is_known
    document.apply([edit(0, 0, 9, 0, "")])
    assert (document.problem is None) == is_known, "only a new text is known again"


@given(
    # JSON joins pairs within one string, as `join_surrogates` does. Pairs across two strings remain.
    st.text("a\n😀" + _HALVES, max_size=20).map(join_surrogates),
    edits(st.text("b\n😀" + _HALVES, max_size=4).map(join_surrogates)),
)
@example("😀", [edit(0, 0, 0, 1, "\ud83d")])
def test_edits_can_split_and_join_surrogate_pairs(text: str, changes: list[TextDocumentContentChangePartial]) -> None:
    check(text, changes)


@given(st.text("a\n", max_size=12), st.integers(0, 12), edits(st.text("ab\n", max_size=6)))
def test_the_anchor_stays_with_its_line(
    text: str, anchor: int, changes: list[TextDocumentContentChangePartial]
) -> None:
    mark, lines = "the anchor's line", text.split("\n")
    anchor = min(anchor, len(lines) - 1)
    lines[anchor] = mark
    document = open_document("\n".join(lines))
    document.anchor_line = anchor
    for change in changes:
        anchor = next(number for number, text in enumerate(document.lines) if text.rstrip("\n") == mark)
        last = len(document.lines) - 1
        if not min(change.range.start.line, last) <= anchor <= min(change.range.end.line, last):  # only edits elsewhere
            document.apply([change])
    assert document.lines[document.anchor_line].rstrip("\n") == mark


def test_changes_of_one_notification_are_applied_in_order() -> None:
    document = open_document("")
    document.apply([edit(0, 0, 0, 0, "ab"), edit(0, 1, 0, 0, "\n"), edit(1, 1, 0, 0, "c")])
    assert "".join(document.lines) == "a\nbc"


@given(st.text("a\n\ré😀", max_size=12), st.integers(0, 9), st.integers(0, 9))
@example("a😀b", 0, 2)
@example("a", 2**31 - 1, 2**31 - 1)
def test_a_place_is_in_the_text_and_not_inside_a_code_point(text: str, line: int, character: int) -> None:
    document = open_document(text)
    asked = Position(line, character)
    found = document.find_place(asked).position
    assert found <= asked
    number, before, after = document.split_at(found)
    assert (number, num_units(before)) == (found.line, found.character)
    assert before + after == document.lines[number]  # no code point was split
    if line < len(document.lines):
        assert found.line == line
        assert num_units(document.lines[line].rstrip("\r\n")) >= found.character


@pytest.mark.parametrize(
    ("text", "line", "line_end"),
    [
        ("", 0, "\n"),
        ("a", 0, "\n"),
        ("a\r\nb", 0, "\r\n"),
        ("a\r\nb", 1, "\r\n"),
        ("a\nb\r\n", 2, "\r\n"),
        ("a\r\nb\nc", 2, "\n"),
        ("a\r\nb\nc", 0, "\r\n"),
        ("a\rb", 9, "\r"),
    ],
)
def test_the_line_end_at_a_place_is_that_of_its_line_or_the_line_above(text: str, line: int, line_end: str) -> None:
    assert open_document(text).find_place(Position(line, 0)).line_end == line_end


def test_an_inverted_edit_makes_the_text_unknown_until_the_whole_text_is_sent() -> None:
    document = open_document("abc")
    with pytest.raises(OutOfSyncError, match="ends before it starts"):
        document.apply([edit(0, 2, 0, -1, "x")])
    document.apply([edit(0, 0, 0, 0, "x")])
    with pytest.raises(OutOfSyncError, match="whole text"):
        document.split_at(Position(0, 0))
    document.apply([TextDocumentContentChangeWholeDocument("again")])
    assert "".join(document.lines) == "again"
