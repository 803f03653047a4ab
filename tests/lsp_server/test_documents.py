"""The documents' text, compared with a slow and simple oracle: the text as a list of the editor's units."""

import timeit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lsprotocol.types import (
    Position,
    PositionEncodingKind,
    Range,
    TextDocumentContentChangePartial,
    TextDocumentContentChangeWholeDocument,
    TextDocumentItem,
)

from lsp_server.documents import Document, join_surrogates, num_units
from lsp_server.errors import OutOfStepError

UTF8, UTF16, UTF32 = PositionEncodingKind.Utf8, PositionEncodingKind.Utf16, PositionEncodingKind.Utf32
_CODECS = {UTF8: "utf-8", UTF16: "utf-16-le", UTF32: "utf-32-le"}
_UNIT_BYTES = {UTF8: 1, UTF16: 2, UTF32: 4}

# Line ends of LSP and those that only Python knows, wide and astral characters.
_CHARACTERS = "ab\t\n\n\r\r\x0b\x0c\x1c\x85\u2028\u2029é漢😀\ufeff"
_HALVES = "\ud83d\ude00"

edits = st.lists(
    st.tuples(*[st.integers(0, 6)] * 4, st.text(_CHARACTERS, max_size=6)),
    max_size=8,
)


class Oracle:
    """The text as a list of units. Each edit counts positions from the start."""

    def __init__(self, text: str, encoding: PositionEncodingKind) -> None:
        self.encoding = encoding
        self.units = self._to_units(text)

    @property
    def text(self) -> str:
        return b"".join(self.units).decode(_CODECS[self.encoding], "surrogatepass")

    def replace(self, span: Range, text: str) -> None:
        start, end = self._find(span.start), self._find(span.end)
        self.units[start:end] = self._to_units(text)

    def _to_units(self, text: str) -> list[bytes]:
        encoded, size = text.encode(_CODECS[self.encoding], "surrogatepass"), _UNIT_BYTES[self.encoding]
        return [encoded[i : i + size] for i in range(0, len(encoded), size)]

    def _is(self, index: int, char: str) -> bool:
        return index < len(self.units) and self.units[index] == self._to_units(char)[0]

    def _find(self, position: Position) -> int:
        index, line = 0, 0
        while line < position.line:
            if index == len(self.units):
                return index
            if self._is(index, "\r") and self._is(index + 1, "\n"):
                index += 1
            elif not self._is(index, "\r") and not self._is(index, "\n"):
                index += 1
                continue
            index += 1
            line += 1
        for _ in range(position.character):
            if index == len(self.units) or self._is(index, "\r") or self._is(index, "\n"):
                break
            index += 1
        while self.encoding is UTF8 and index < len(self.units) and self.units[index][0] & 0xC0 == 0x80:
            index -= 1
        return index


def open_document(text: str, encoding: PositionEncodingKind = UTF16, version: int = 0) -> Document:
    return Document(TextDocumentItem("file:///a.py", "python", version, text), encoding)


def edit(line: int, character: int, end_line: int, end_character: int, text: str) -> TextDocumentContentChangePartial:
    span = Range(Position(line, character), Position(end_line, end_character))
    return TextDocumentContentChangePartial(range=span, text=text)


def check_against_oracle(
    text: str, encoding: PositionEncodingKind, edits: list[tuple[int, int, int, int, str]]
) -> None:
    document, oracle = open_document(text, encoding), Oracle(text, encoding)
    for version, (line, character, num_lines, end_character, new) in enumerate(edits, 1):
        if num_lines == 0:
            end_character += character
        change = edit(line, character, line + num_lines, end_character, new)
        document.apply(version, [change])
        oracle.replace(change.range, new)
        assert document.text == oracle.text
        lines = oracle.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert [line.rstrip("\r\n") for line in document.lines] == lines


@given(st.text(_CHARACTERS, max_size=30), st.sampled_from([UTF8, UTF16, UTF32]), edits)
@example("a\rb\n", UTF16, [(1, 0, 0, 1, "")])  # the remains of two line ends are one line end
@example("a\r", UTF16, [(1, 0, 0, 0, "\n")])
@example("x\x0cy\u2028z\n1", UTF16, [(1, 0, 0, 1, "2")])
def test_after_edits_the_text_equals_the_editors(
    text: str, encoding: PositionEncodingKind, edits: list[tuple[int, int, int, int, str]]
) -> None:
    check_against_oracle(text, encoding, edits)


@given(
    st.text("a\n😀" + _HALVES, max_size=20),
    st.lists(st.tuples(*[st.integers(0, 6)] * 4, st.text("b\n😀" + _HALVES, max_size=4)), max_size=8),
)
def test_edits_can_split_and_join_surrogate_pairs(text: str, edits: list[tuple[int, int, int, int, str]]) -> None:
    # JSON joins pairs within one string, as `join_surrogates` does. Pairs across two strings remain.
    check_against_oracle(join_surrogates(text), UTF16, [(*edit[:4], join_surrogates(edit[4])) for edit in edits])


@given(st.text("a\n", max_size=12), st.integers(0, 12), edits)
def test_the_anchor_stays_with_its_line(text: str, anchor: int, edits: list[tuple[int, int, int, int, str]]) -> None:
    mark = "the anchor's line"
    lines = text.split("\n")
    anchor = min(anchor, len(lines) - 1)
    lines[anchor] = mark
    document = open_document("\n".join(lines))
    document.anchor_line = anchor
    for version, (line, character, num_lines, end_character, new) in enumerate(edits, 1):
        anchor = next(number for number, text in enumerate(document.lines) if text.rstrip("\n") == mark)
        if num_lines == 0:
            end_character += character
        last = len(document.lines) - 1
        if min(line, last) <= anchor <= min(line + num_lines, last):
            continue  # only edits elsewhere
        document.apply(version, [edit(line, character, line + num_lines, end_character, new.replace("\r", "\n"))])
    assert document.lines[document.anchor_line].rstrip("\n") == mark


def test_changes_of_one_notification_are_applied_in_order() -> None:
    document = open_document("")
    document.apply(1, [edit(0, 0, 0, 0, "ab"), edit(0, 1, 0, 1, "\n"), edit(1, 1, 1, 1, "c")])
    assert document.text == "a\nbc"


def test_an_older_version_is_ignored() -> None:
    document = open_document("new", version=5)
    document.apply(4, [edit(0, 0, 0, 3, "old")])
    assert (document.text, document.version) == ("new", 5)


@given(st.text("a\n\ré😀", max_size=12), st.sampled_from([UTF8, UTF16, UTF32]), st.integers(0, 9), st.integers(0, 9))
@example("a😀b", UTF16, 0, 2)
@example("a", UTF16, 2**31 - 1, 2**31 - 1)
def test_a_place_is_in_the_text_and_not_inside_a_code_point(
    text: str, encoding: PositionEncodingKind, line: int, character: int
) -> None:
    document = open_document(text, encoding)
    asked = Position(line, character)
    found = document.find_place(asked).position
    assert found <= asked
    number, before, after = document.split_at(found)
    assert (number, num_units(before, encoding)) == (found.line, found.character)
    assert before + after == document.lines[number]  # no code point was split
    if line < len(document.lines):
        assert found.line == line
        assert num_units(document.lines[line].rstrip("\r\n"), encoding) >= found.character


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
    with pytest.raises(OutOfStepError, match="ends before it starts"):
        document.apply(1, [edit(0, 2, 0, 1, "x")])
    document.apply(2, [edit(0, 0, 0, 0, "x")])
    with pytest.raises(OutOfStepError, match="opened again"):
        document.split_at(Position(0, 0))
    document.apply(3, [TextDocumentContentChangeWholeDocument("again")])
    assert document.text == "again"


@pytest.mark.parametrize("filling", ["a", "é"])
def test_an_edit_in_a_very_long_line_takes_as_long_as_a_few_copies_of_it(filling: str) -> None:
    line = filling * 1_000_000
    document, change = open_document(line + "\n"), edit(0, 800_000, 0, 800_000, "x")
    edit_s = min(timeit.repeat(lambda: document.apply(1, [change]), number=1))
    assert edit_s < 20 * min(timeit.repeat(lambda: line.encode("utf-16-le").decode("utf-16-le"), number=1))
