"""Turns generated text into LSP items that do not repeat the text after the cursor."""

import re
from dataclasses import dataclass

from lsprotocol.types import (
    CompletionItem,
    CompletionItemKind,
    InlineCompletionItem,
    InsertTextFormat,
    InsertTextMode,
    Position,
    Range,
    SelectedCompletionInfo,
    TextEdit,
)

from lsp_server.context import Context
from lsp_server.documents import Place
from lsp_server.positions import num_units, split_line

_CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
_BRACKETS = frozenset(_CLOSER_OF.values())
_QUOTES = "\"'`"
# Control characters other than \t and \n, and those that make an editor show text in another order than it is.
_UNSAFE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CLOSERS = _BRACKETS | frozenset(_QUOTES)  # editors insert these after the cursor automatically


@dataclass(frozen=True, slots=True)
class Insertion:
    """The text to insert at the cursor, and the text right after the cursor that it replaces."""

    text: str
    replaced_after: str = ""


def fit(text: str, context: Context) -> Insertion | None:
    """Returns what to insert for `text`, which was generated at the cursor; None if nothing is left to suggest.

    In this order:

    1. `text` is cut before the first control character or change of the writing direction.
    2. White space at the end of `text` is removed, but not before a word or a quote: `not ` before `x`.
    3. A suggestion that only repeats the line below the cursor is dropped.
    4. If the rest of the line is closing brackets that the first line of `text` closes too, it is replaced:
       `self):⏎  pass` replaces the `)` that the editor inserted.
    5. Otherwise, in the middle of a line, `text` is cut to its first line, and the end of it is removed if it repeats
       the text right after the cursor: `a,` before `, b)` becomes `a`.

    The engine has ended `text` where it reached the suffix. What is left to do here comes from the editor: brackets and
    quotes that it has inserted since, and suggestions that are not worth showing.
    """
    text = _UNSAFE.split(text, maxsplit=1)[0]
    stripped = text.rstrip()
    if not stripped or _repeats_below(stripped, context):
        return None
    line_after = context.line_after.rstrip()
    if not line_after:
        return Insertion(stripped)
    first_line, _, more = stripped.partition("\n")
    if more and _completes(context, first_line):
        return Insertion(stripped, line_after)
    line = _cut_line(text.partition("\n")[0], context)
    return Insertion(line, line_after if _completes(context, line) else "") if line else None


def inline_item(insertion: Insertion, context: Context, place: Place) -> InlineCompletionItem:
    """Returns the item for `textDocument/inlineCompletion`.

    At the end of a line, the item replaces the word before the cursor with the whole word, so that the editor keeps
    showing it while the user deletes and retypes letters of that word. Elsewhere it only inserts, because Neovim draws
    an item that replaces text over the text after the cursor.
    """
    word = "" if context.line_after.strip() else _find_word(context.line_before)
    return _inline_item(word, insertion, place)


def extend_selected(
    insertion: Insertion, context: Context, place: Place, selected: SelectedCompletionInfo
) -> InlineCompletionItem | None:
    """Returns the item that continues what is selected in the editor's completion menu; None if the insertion does not.

    The item must replace the same range with a longer text (LSP 3.18, SelectedCompletionInfo).
    """
    num_typed = place.position.character - selected.range.start.character
    if not 0 <= num_typed <= num_units(context.line_before, place.encoding):
        return None
    start = num_units(context.line_before, place.encoding) - num_typed
    item = _inline_item(split_line(context.line_before, start, place.encoding)[1], insertion, place)
    return item if item.range == selected.range and str(item.insert_text).startswith(selected.text) else None


def completion_item(insertion: Insertion, context: Context, place: Place) -> CompletionItem:
    """Returns the item for `textDocument/completion`, such that clients show it first and do not filter it out."""
    word = _find_word(context.line_before)
    text = word + insertion.text
    first_line, more, _ = text.strip().partition("\n")
    return CompletionItem(
        label=first_line + (" …" if more else ""),
        kind=CompletionItemKind.Text,
        detail="midtoken",
        documentation=text if more else None,
        sort_text="\0",  # before all others
        filter_text=text.partition("\n")[0] or word,  # clients compare its beginning with the typed text
        insert_text_format=InsertTextFormat.PlainText,
        insert_text_mode=InsertTextMode.AsIs,  # the text is indented already
        text_edit=TextEdit(range=_range(word, insertion, place), new_text=_write(text, place)),
    )


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
    while start > 0 and _is_word(line_before[start - 1]):
        start -= 1
    return line_before[start:]


def _repeats_below(text: str, context: Context) -> bool:
    """True if the cursor's line, completed with `text`, equals the lines right below it, indentation included."""
    if context.line_after.strip():
        return False
    completed = context.line_before + text
    below = "\n".join(line.rstrip() for line in context.suffix.split("\n") if line.strip())
    return below == completed or below.startswith(completed + "\n")


def _cut_line(line: str, context: Context) -> str:
    """Removes from the end of `line` what the rest of the cursor's line begins with, and white space."""
    stripped = line.rstrip()
    trimmed = _trim_overlap(stripped, context)
    kept = line if trimmed == stripped else trimmed
    separates = _is_word(context.line_after[0]) or context.line_after[0] in _QUOTES
    return kept if separates and kept.strip() else kept.rstrip()


def _trim_overlap(line: str, context: Context) -> str:
    """Removes an end of `line` that the rest of the cursor's line begins with, if one can be removed.

    Of several, it is the one that leaves the fewest brackets and quotes open, and of those the longest: `f(g(` needs
    the bracket of `x)` before `)`, and one of `h(x))` before `))`.
    """
    before, after = context.line_before, context.line_after.rstrip()
    kept = [line]
    for length in range(1, min(len(line), len(after)) + 1):
        if after.startswith(line[-length:]) and not _cuts_word(line[-length:], after):
            kept.append(line[:-length])
    return min(reversed(kept), key=lambda text: _count_faults(before + text + after))


def _cuts_word(overlap: str, after: str) -> bool:
    """True if the overlap ends inside a word of the suffix: `e` does not repeat `else`."""
    return len(after) > len(overlap) and _is_word(overlap[-1]) and _is_word(after[len(overlap)])


def _completes(context: Context, line: str) -> bool:
    """True if the rest of the line is closing brackets, and `line` closes those already."""
    before, after = context.line_before, context.line_after.rstrip()
    if not all(char in _BRACKETS for char in after) or not _match_brackets(line)[1].startswith(after):
        return False
    return _count_faults(before + line) < _count_faults(before + line + after)


def _count_faults(line: str) -> int:
    """The brackets that are never closed or never opened, and the kinds of quotes that are left open."""
    lacking, unopened = _match_brackets(line)
    return len(lacking) + len(unopened) + sum(line.count(quote) % 2 for quote in _QUOTES)


def _match_brackets(text: str) -> tuple[str, str]:
    """Returns the closing brackets that `text` lacks, and those in it that were never opened.

    Brackets in string literals count too.
    """
    lacking: list[str] = []
    unopened = ""
    for char in text:
        if char in _CLOSER_OF:
            lacking.append(_CLOSER_OF[char])
        elif char in _BRACKETS and lacking and lacking[-1] == char:
            lacking.pop()
        elif char in _BRACKETS:
            unopened += char
    return "".join(lacking), unopened


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"
