"""The LSP items: ranges in the editor's units, line ends, and what clients filter by."""

import pytest
from lsprotocol.types import MarkupContent, MarkupKind, Position, PositionEncodingKind, Range, SelectedCompletionInfo

from lsp_server.context import Context
from lsp_server.documents import Place
from lsp_server.filters import Insertion
from lsp_server.items import Suggestion, completion_item, extend_selected, inline_item

UTF8, UTF16 = PositionEncodingKind.Utf8, PositionEncodingKind.Utf16


@pytest.mark.parametrize(
    ("before", "after", "cursor", "encoding", "inserted", "start", "replaced"),
    [
        ("x = Nod", "\nmore", 7, UTF16, "Node", 4, ""),  # at the end of a line it replaces the typed word
        ("f(Nod", ")\nmore", 5, UTF16, "e", 5, ""),  # in the middle it only inserts
        ("f(Nod", ")\nmore", 5, UTF16, "e", 5, ")"),  # and may replace the bracket that follows
        ("😀 éa", "", 8, UTF8, "éae", 5, ""),
        ("😀 éa", "", 5, UTF16, "éae", 3, ""),
        # A mark or a joiner is part of its word, as in Unicode's `\\w`.
        ("संख्या = कीम", "", 12, UTF16, "कीमe", 9, ""),
        ("cafe\u0301", "", 6, UTF8, "cafe\u0301e", 0, ""),
        ("x = می\u200cخوا", "", 10, UTF16, "می\u200cخواe", 4, ""),
    ],
)
def test_an_item_replaces_the_typed_word_in_the_units_of_the_editor(
    before: str, after: str, cursor: int, encoding: PositionEncodingKind, inserted: str, start: int, replaced: str
) -> None:
    item = inline_item(
        Insertion("e", replaced), Suggestion(Place(Position(3, cursor), encoding), Context(before, after), ())
    )
    assert item.insert_text == inserted
    assert item.range == Range(Position(3, start), Position(3, cursor + len(replaced)))


@pytest.mark.parametrize(
    ("text", "label", "filter_text", "has_preview"),
    [
        ("e(value)\n    x", "Node(value) …", "Node(value)", True),
        ("\t# note", "Nod # note", "Nod\t# note", False),
    ],
)
def test_a_menu_item_passes_the_filters_of_clients_and_comes_first(
    text: str, label: str, filter_text: str, has_preview: bool
) -> None:
    item = completion_item(
        Insertion(text), Suggestion(Place(Position(0, 10)), Context("return Nod", ""), ()), reads_markdown=True
    )
    assert (item.label, item.filter_text, item.documentation is not None) == (label, filter_text, has_preview)
    assert item.text_edit is not None
    assert item.text_edit.new_text == f"Nod{text}"
    assert "\0" < (item.sort_text or "") < " "  # Emacs refuses the NUL


@pytest.mark.parametrize(("text", "fence"), [("f():\n    x", "```"), ("f():\n    ````", "`````")])
def test_the_preview_of_a_menu_item_keeps_the_indentation_in_markdown(text: str, fence: str) -> None:
    item = completion_item(Insertion(text), Suggestion(Place(Position(0, 0)), Context("", ""), ()), reads_markdown=True)
    assert item.documentation == MarkupContent(MarkupKind.Markdown, f"{fence}\n{text}\n{fence}")


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
    assert (
        extend_selected(Insertion("g(x)"), Suggestion(Place(Position(0, 10)), Context("console.lo", ""), ()), selected)
        is None
    )
