"""Turns insertions into LSP items, with ranges in the editor's units and the document's line ends."""

import re
from dataclasses import dataclass

from lsprotocol.types import (
    CompletionItem,
    CompletionItemKind,
    InlineCompletionItem,
    InsertTextFormat,
    InsertTextMode,
    MarkupContent,
    MarkupKind,
    Position,
    Range,
    SelectedCompletionInfo,
    TextEdit,
)

from inference.likely_text import is_word
from lsp_server.context import Context
from lsp_server.documents import Place, num_units, split_line
from lsp_server.filters import Insertion


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The text around a cursor, and what to insert there: the best first, at least one."""

    place: Place
    context: Context
    insertions: tuple[Insertion, ...]


def inline_item(insertion: Insertion, suggestion: Suggestion) -> InlineCompletionItem:
    """Returns the item for `textDocument/inlineCompletion`.

    At the end of a line, the item replaces the word before the cursor with the whole word, so that the editor keeps
    showing it while the user deletes and retypes letters of that word. Elsewhere it only inserts, because Neovim draws
    an item that replaces text over the text after the cursor.
    """
    context = suggestion.context
    word = "" if context.line_after.strip() else _find_word(context.line_before)
    return _inline_item(word, insertion, suggestion.place)


def extend_selected(
    insertion: Insertion, suggestion: Suggestion, selected: SelectedCompletionInfo
) -> InlineCompletionItem | None:
    """Returns the item that continues what is selected in the editor's completion menu; None if the insertion does not.

    The item must replace the same range with a longer text (LSP 3.18, SelectedCompletionInfo).
    """
    place, line_before = suggestion.place, suggestion.context.line_before
    start = num_units(line_before, place.encoding) - (place.position.character - selected.range.start.character)
    if not 0 <= start <= num_units(line_before, place.encoding):
        return None
    item = _inline_item(split_line(line_before, start, place.encoding)[1], insertion, place)
    return item if item.range == selected.range and str(item.insert_text).startswith(selected.text) else None


def completion_item(insertion: Insertion, suggestion: Suggestion, reads_markdown: bool) -> CompletionItem:
    """Returns the item for `textDocument/completion`, such that clients show it first and do not filter it out.

    `reads_markdown`: the client does, so the preview of several lines is a block of code.
    """
    word, place = _find_word(suggestion.context.line_before), suggestion.place
    text = word + insertion.text
    first_line, more, _ = text.strip().partition("\n")
    return CompletionItem(
        label=first_line.replace("\t", " ") + (" …" if more else ""),  # Helix would draw a tab over other text
        kind=CompletionItemKind.Text,
        detail="midtoken",
        documentation=_preview(text, reads_markdown) if more else None,
        sort_text="\1",  # before all others; Emacs refuses a message with \0
        filter_text=text.partition("\n")[0] or word,  # clients compare its beginning with the typed text
        insert_text_format=InsertTextFormat.PlainText,
        insert_text_mode=InsertTextMode.AsIs,  # the text is indented already
        text_edit=TextEdit(range=_range(word, insertion, place), new_text=_write(text, place)),
    )


def _preview(text: str, reads_markdown: bool) -> str | MarkupContent:
    if not reads_markdown:
        return text
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return MarkupContent(MarkupKind.Markdown, f"{fence}\n{text}\n{fence}")


def _inline_item(typed: str, insertion: Insertion, place: Place) -> InlineCompletionItem:
    text = _write(typed + insertion.text, place)
    return InlineCompletionItem(insert_text=text, filter_text=text, range=_range(typed, insertion, place))


def _write(text: str, place: Place) -> str:
    return text.replace("\n", place.line_end)


def _range(typed: str, insertion: Insertion, place: Place) -> Range:
    line, character = place.position.line, place.position.character
    start = character - num_units(typed, place.encoding)
    end = character + num_units(insertion.replaced_after, place.encoding)
    return Range(Position(line, start), Position(line, end))


def _find_word(line_before: str) -> str:
    """Returns the identifier that ends at the cursor; empty if none does."""
    start = len(line_before)
    while start > 0 and is_word(line_before[start - 1]):
        start -= 1
    return line_before[start:]
