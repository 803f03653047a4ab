"""Automatic suggestions do not disturb."""

import pytest
from lsprotocol.types import Position, PositionEncodingKind, Range, TextDocumentContentChangePartial, TextDocumentItem

from lsp_server.disturbance import find_disturbance, is_paste
from lsp_server.reporting.reasons import Reason
from lsp_server.settings import Settings
from lsp_server.text.context import cut_context
from lsp_server.text.documents import Document


def _find(document: Document, line: int, character: int, offered: frozenset[str] = frozenset()) -> Reason | None:
    place = document.find_place(Position(line, character))
    document.was_pasted = is_paste(document.last_edit, offered)
    silence = find_disturbance(document, place, cut_context(document, place.position, Settings()))
    return None if silence is None else silence.reason


def _open(text: str) -> Document:
    return Document(TextDocumentItem("file:///a.py", "python", 0, text), PositionEncodingKind.Utf16)


def _insert(document: Document, line: int, character: int, *texts: str) -> None:
    at = Position(line, character)
    changes = [TextDocumentContentChangePartial(range=Range(at, at), text=text) for text in texts]
    document.apply(document.version + 1, changes)


def test_inside_a_word_that_was_not_edited_nothing_is_offered() -> None:
    document = _open("value")
    assert _find(document, 0, 3) is Reason.INSIDE_WORD
    assert _find(document, 0, 5) is None
    assert _find(document, 0, 0) is None


def test_inside_a_word_that_is_being_edited_something_is_offered() -> None:
    document = _open("one\nvalue")
    _insert(document, 1, 2, "x")
    assert _find(document, 1, 3) is None
    assert _find(document, 1, 4) is Reason.INSIDE_WORD
    assert _find(document, 0, 2) is Reason.INSIDE_WORD


def test_after_edits_at_several_places_any_of_them_may_be_the_cursors() -> None:
    document = _open("value")
    _insert(document, 0, 2, "x", "y")
    assert _find(document, 0, 1) is None


@pytest.mark.parametrize("text", ["x = 1\ny = 2", "a" * 41])
def test_after_pasting_nothing_is_offered_until_the_next_edit(text: str) -> None:
    document = _open("")
    _insert(document, 0, 0, text)
    line, before, _ = document.split_at(Position(9, 0))
    assert _find(document, line, len(before)) is Reason.PASTED
    _insert(document, line, len(before), "z")
    assert _find(document, line, len(before) + 1) is None


def test_pasted_text_is_no_reason_elsewhere() -> None:
    document = _open("\nx = ")
    _insert(document, 0, 0, "a = 1\nb = 2")
    assert _find(document, 2, 4) is None


@pytest.mark.parametrize(
    "inserted", ["f(x):\r\n    return x", "(x):\n    return x", "    return x\n    # and more than forty chars"]
)
def test_an_accepted_suggestion_is_not_pasted_text(inserted: str) -> None:
    document = _open("")
    _insert(document, 0, 0, inserted)
    line, before, _ = document.split_at(Position(9, 0))
    offered = frozenset({"def f(x):\n    return x\n    # and more than forty chars"})
    assert _find(document, line, len(before), offered) is None


@pytest.mark.parametrize("text", ["\n    ", "self.value = value", "()"])
def test_what_an_editor_types_is_not_pasted(text: str) -> None:
    document = _open("")
    _insert(document, 0, 0, text)
    line, before, _ = document.split_at(Position(9, 0))
    assert _find(document, line, len(before)) is None
