"""What an editor is given to show: what is left to insert of the model's text, and LSP items of it.

One small step removes each fault of the text, in a fixed order. Items have ranges in the editor's units and the
document's line ends.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

import regex
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

from inference.brackets import QUOTES, count_bracket_faults, fit_line
from inference.likely_text import is_word
from lsp_server.context import Context
from lsp_server.documents import Place, num_units, split_line
from lsp_server.guard import PLACEHOLDER
from lsp_server.indentation import match_indentation

# Control characters other than \t and \n, those that make an editor show text in another order than it is, and the one
# that stands for bytes of the model that are not UTF-8.
_UNSAFE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffd]")
_MAY_REPEAT = re.compile(r"\s*(?:await\s+)?[\w.:>-]+\(.*\);?|.*,")
_NEAR_CHARS = 2000  # before the cursor, in which brackets count; after it, a quarter of that
_LAST_WORD = regex.compile(r"\w+\Z")


def cut_at_placeholder(text: str, context: Context) -> str:
    """Cuts `text` before a copy of that word and its quote, unless the file itself has the word."""
    if PLACEHOLDER not in text or PLACEHOLDER in context.prefix or PLACEHOLDER in context.suffix:
        return text
    return text.partition(PLACEHOLDER)[0].rstrip(QUOTES)


def drop_repeated_above(text: str, context: Context) -> str:
    """Drops a suggestion with which the cursor's line and those after it equal the lines right above.

    Of a single line, what both lines above begin with stays: `self.` after `self.a = a` and `self.b = b`. A line
    without a letter or digit may be repeated: `),`. So may a call and an item of a list: `step()`, `0,`.
    """
    completed = [line.rstrip() for line in (context.line_before + text.rstrip()).split("\n")]
    if not any(char.isalnum() for line in completed for char in line):
        return text
    lines = context.prefix[: len(context.prefix) - len(context.line_before)].split("\n")
    above = [line.rstrip() for line in lines if line.strip()]
    if above[-len(completed) :] != completed or (len(completed) == 1 and _MAY_REPEAT.fullmatch(completed[0])):
        return text
    if len(completed) > 1 or len(above) < 2:
        return ""
    pairs = zip(above[-2], above[-1], strict=False)
    shared = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    begun = _LAST_WORD.sub("", shared)
    return begun.removeprefix(context.line_before) if begun.startswith(context.line_before) else ""


def trim_blanks(text: str, context: Context) -> str:
    """Removes white space at the end, but not where it separates `text` from a word or quote: `not ` before `x`."""
    after = context.line_after.rstrip()
    separates = bool(after) and "\n" not in text and (is_word(context.line_after[0]) or context.line_after[0] in QUOTES)
    return text if separates and text.strip() else text.rstrip()


@dataclass(frozen=True, slots=True)
class Insertion:
    """The text to insert at the cursor, and the text right after the cursor that it replaces."""

    text: str
    replaced_after: str = ""


def fit(text: str, context: Context, find_unit: Callable[[], str | None] = lambda: None) -> Insertion | None:
    """Returns what to insert for `text`, which was generated at the cursor; None if nothing is left to suggest.

    The engine has ended `text` where it reached the suffix. What is left to do here comes from the editor, such as
    brackets and quotes that it has inserted (`fit_line`): `self):⏎  pass` replaces the `)` after the cursor.
    `find_unit` finds the indentation of one level where the context does not show it.
    """
    text = cut_at_placeholder(_UNSAFE.split(text, maxsplit=1)[0], context)
    text = drop_repeated_above(match_indentation(text, context, find_unit), context)
    text, replaced_after = _fit_rest(text, context) if context.line_after.strip() else (text, "")
    text = trim_blanks(text, context)
    return None if not text or text == replaced_after else Insertion(text, replaced_after)


def fit_all(
    texts: Iterable[str], context: Context, find_unit: Callable[[], str | None] = lambda: None
) -> tuple[Insertion, ...]:
    """Returns what is left to insert of some texts, in their order, without what stands there twice."""
    fitted = (fit(text, context, find_unit) for text in texts)
    return tuple(dict.fromkeys(each for each in fitted if each is not None))


def _fit_rest(text: str, context: Context) -> tuple[str, str]:
    """Returns what is left of `text` in front of the rest of the line, and what it replaces of that.

    It is its first line, unless that replaces the whole rest, and a block follows.
    """
    line, rest = text.partition("\n")[0], context.line_after.rstrip()
    before, after = context.prefix[-_NEAR_CHARS:], context.suffix[: _NEAR_CHARS // 4]
    end, num_replaced = fit_line(before, line, after)
    if (end, num_replaced) != (len(line), len(rest)) or not text[end:].strip():
        return line[:end], rest[:num_replaced]
    whole = before + text  # the engine may have ended it where the rest closes brackets of a later line
    return text, "" if count_bracket_faults(whole + after) < count_bracket_faults(whole + after[len(rest) :]) else rest


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
    start = num_units(line_before) - (place.position.character - selected.range.start.character)
    if not 0 <= start <= num_units(line_before):
        return None
    item = _inline_item(split_line(line_before, start)[1], insertion, place)
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
    start = character - num_units(typed)
    end = character + num_units(insertion.replaced_after)
    return Range(Position(line, start), Position(line, end))


def _find_word(line_before: str) -> str:
    """Returns the identifier that ends at the cursor; empty if none does."""
    start = len(line_before)
    while start > 0 and is_word(line_before[start - 1]):
        start -= 1
    return line_before[start:]
