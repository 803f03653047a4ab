"""Turns generated text into LSP items that do not repeat the text after the cursor."""

from dataclasses import dataclass

from lsprotocol.types import (
    CompletionItem,
    CompletionItemKind,
    InlineCompletionItem,
    InsertTextFormat,
    InsertTextMode,
    Position,
    PositionEncodingKind,
    Range,
    TextEdit,
)

from lsp_server.context import Context
from lsp_server.positions import num_units

_CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
_BRACKETS = frozenset(_CLOSER_OF.values())
_QUOTES = "\"'`"
CLOSERS = _BRACKETS | frozenset(_QUOTES)  # editors insert these after the cursor automatically


@dataclass(frozen=True, slots=True)
class Insertion:
    """The text to insert at the cursor, and the text right after the cursor that it replaces."""

    text: str
    replaced_after: str = ""


def fit(text: str, context: Context) -> Insertion | None:
    """Returns what to insert for `text`, which was generated at the cursor; None if nothing is left to suggest.

    In this order:

    1. White space at the end of `text` is removed.
    2. A suggestion that only repeats the lines below the cursor is dropped.
    3. The end of `text` is removed if it repeats the text right after the cursor: `bar)` before `)` becomes `bar`.
    4. If the rest of the line is closing brackets that the first line of `text` closes too, it is replaced:
       `self):⏎  pass` replaces the `)` that the editor inserted.
    5. Otherwise, in the middle of a line, `text` is cut to its first line.
    """
    text = text.rstrip()
    if not text or _repeats_below(text, context):
        return None
    text = _trim_overlap(text, context.suffix).rstrip()
    line_after = context.line_after.rstrip()
    first_line = text.partition("\n")[0]
    if line_after and _closes_all(first_line, line_after):
        return Insertion(text, line_after)
    if line_after:
        text = _trim_overlap(first_line, context.suffix).rstrip()
    return Insertion(text) if text else None


def inline_item(
    insertion: Insertion, context: Context, position: Position, encoding: PositionEncodingKind
) -> InlineCompletionItem:
    """Returns the item for `textDocument/inlineCompletion`.

    At the end of a line, the item replaces the word before the cursor with the whole word, so that the editor keeps
    showing it while the user deletes and retypes letters of that word. Elsewhere it only inserts, because Neovim draws
    an item that replaces text over the text after the cursor.
    """
    word = "" if context.line_after.strip() else _find_word(context.line_before)
    span = _range(word, insertion, position, encoding)
    return InlineCompletionItem(insert_text=word + insertion.text, filter_text=word + insertion.text, range=span)


def completion_item(
    insertion: Insertion, context: Context, position: Position, encoding: PositionEncodingKind
) -> CompletionItem:
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
        text_edit=TextEdit(range=_range(word, insertion, position, encoding), new_text=text),
    )


def _range(word: str, insertion: Insertion, position: Position, encoding: PositionEncodingKind) -> Range:
    start = position.character - num_units(word, encoding)
    end = position.character + num_units(insertion.replaced_after, encoding)
    return Range(Position(position.line, start), Position(position.line, end))


def _find_word(line_before: str) -> str:
    """Returns the identifier that ends at the cursor; empty if none does."""
    start = len(line_before)
    while start > 0 and _is_word(line_before[start - 1]):
        start -= 1
    return line_before[start:]


def _repeats_below(text: str, context: Context) -> bool:
    """True if the cursor's line, completed with `text`, equals the lines right below it."""
    if context.line_after.strip():
        return False
    completed = (context.line_before + text).strip()
    below = context.suffix.strip()
    return below == completed or below.startswith(completed + "\n")


def _trim_overlap(text: str, suffix: str) -> str:
    """Removes the longest end of `text` that `suffix` begins with and that can be removed; see the two checks."""
    for length in range(min(len(text), len(suffix)), 0, -1):
        kept, overlap = text[:-length], text[-length:]
        if suffix.startswith(overlap) and not _cuts_word(overlap, suffix) and not _opens(kept, text):
            return kept
    return text


def _cuts_word(overlap: str, suffix: str) -> bool:
    """True if the overlap ends inside a word of the suffix: `e` does not repeat `else`."""
    return len(suffix) > len(overlap) and _is_word(overlap[-1]) and _is_word(suffix[len(overlap)])


def _opens(kept: str, text: str) -> bool:
    """True if `kept` leaves a bracket or quote open that `text` closes: `f(a)` must keep its `)`."""
    if _count_open(kept) > _count_open(text):
        return True
    return any(kept.count(quote) % 2 > text.count(quote) % 2 for quote in _QUOTES)


def _count_open(text: str) -> int:
    return len(_match_brackets(text)[0])


def _closes_all(first_line: str, line_after: str) -> bool:
    """True if `line_after` consists of closing brackets, and the first line closes the same ones."""
    unmatched = _match_brackets(first_line)[1]
    return all(char in _BRACKETS for char in line_after) and unmatched.startswith(line_after)


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
