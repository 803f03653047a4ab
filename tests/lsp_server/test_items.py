"""The LSP items: ranges in the editor's units, line ends, and what clients filter by."""

import pytest
from lsprotocol.types import MarkupContent, MarkupKind, Position, PositionEncodingKind, Range, SelectedCompletionInfo

from lsp_server.context import Context
from lsp_server.documents import Place
from lsp_server.filters import Insertion
from lsp_server.items import completion_item, extend_selected, inline_item

UTF8, UTF16 = PositionEncodingKind.Utf8, PositionEncodingKind.Utf16


def test_at_the_end_of_a_line_the_item_replaces_the_typed_word() -> None:
    item = inline_item(Insertion("e"), Context("x = Nod", "\nmore"), Place(Position(3, 7)))
    assert (item.insert_text, item.range) == ("Node", Range(Position(3, 4), Position(3, 7)))


def test_in_the_middle_of_a_line_the_item_only_inserts() -> None:
    item = inline_item(Insertion("e"), Context("f(Nod", ")\nmore"), Place(Position(3, 5)))
    assert (item.insert_text, item.range) == ("e", Range(Position(3, 5), Position(3, 5)))


@pytest.mark.parametrize(("encoding", "cursor", "start"), [(UTF8, 8, 5), (UTF16, 5, 3)])
def test_ranges_are_in_the_units_of_the_editor(encoding: PositionEncodingKind, cursor: int, start: int) -> None:
    item = inline_item(Insertion("x"), Context("😀 éa", ""), Place(Position(0, cursor), encoding))
    assert item.range is not None
    assert (item.range.start.character, item.range.end.character) == (start, cursor)


def test_a_menu_item_passes_the_filters_of_clients() -> None:
    item = completion_item(Insertion("e(value)\n    x"), Context("return Nod", ""), Place(Position(0, 10)))
    assert item.label == "Node(value) …"
    assert item.filter_text == "Node(value)"
    assert item.text_edit is not None
    assert item.text_edit.new_text == "Node(value)\n    x"
    assert item.documentation == "Node(value)\n    x"


def test_a_menu_item_comes_first_and_has_no_character_that_emacs_refuses() -> None:
    sort_text = completion_item(Insertion("x"), Context("", ""), Place(Position(0, 0))).sort_text
    assert sort_text is not None
    assert "\0" < sort_text < " "


def test_the_label_of_a_menu_item_has_no_tab() -> None:
    item = completion_item(Insertion("x\t# note"), Context("", ""), Place(Position(0, 0)))
    assert item.label == "x # note"
    assert item.text_edit is not None
    assert item.text_edit.new_text == "x\t# note"


@pytest.mark.parametrize(("text", "fence"), [("f():\n    x", "```"), ("f():\n    ````", "`````")])
def test_the_preview_of_a_menu_item_keeps_the_indentation_in_markdown(text: str, fence: str) -> None:
    item = completion_item(Insertion(text), Context("", ""), Place(Position(0, 0)), reads_markdown=True)
    assert item.documentation == MarkupContent(MarkupKind.Markdown, f"{fence}\n{text}\n{fence}")


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_the_text_has_the_documents_line_ends(line_end: str) -> None:
    insertion, context = Insertion(":\n    x\n"), Context("if a", "")
    place = Place(Position(0, 4), line_end=line_end)
    text = f"a:{line_end}    x{line_end}"
    assert inline_item(insertion, context, place).insert_text == text
    edit = completion_item(insertion, context, place).text_edit
    assert edit is not None
    assert edit.new_text == text


def test_an_item_continues_what_the_menu_has_selected() -> None:
    selected = SelectedCompletionInfo(Range(Position(0, 7), Position(0, 10)), ".log")
    place = Place(Position(0, 10))
    item = extend_selected(Insertion("g(x)"), Context("console.lo", ""), place, selected)
    assert item is not None
    assert (item.insert_text, item.range) == (".log(x)", selected.range)


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        ((0, 7), (0, 10), ".lock"),
        ((0, 6), (0, 10), ".log"),
        ((0, 7), (0, 9), ".l"),
        ((0, 11), (0, 12), ""),
        ((0, 7), (1, 0), ".log"),
        ((1, 7), (1, 10), ".log"),
    ],
)
def test_no_item_is_shown_over_another_selection(start: tuple[int, int], end: tuple[int, int], text: str) -> None:
    selected = SelectedCompletionInfo(Range(Position(*start), Position(*end)), text)
    assert extend_selected(Insertion("g(x)"), Context("console.lo", ""), Place(Position(0, 10)), selected) is None
