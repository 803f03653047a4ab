"""Applies the filters in their order, and counts which of them had something to do."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from lsp_server.brackets import count_faults, match_brackets
from lsp_server.filters.indentation import match_indentation
from lsp_server.filters.placeholders import cut_at_placeholder
from lsp_server.filters.repeated_lines import drop_repeated_above, drop_repeated_below
from lsp_server.filters.suffix_overlap import cut_to_line, replaces_rest, trim_blanks, trim_overlap
from lsp_server.filters.unsafe_characters import cut_at_unsafe
from lsp_server.text.context import Context

_FILTERS: tuple[Callable[[str, Context], str], ...] = (
    cut_at_unsafe,
    cut_at_placeholder,
    match_indentation,
    drop_repeated_below,
    drop_repeated_above,
    cut_to_line,
    trim_overlap,
    trim_blanks,
)


@dataclass(frozen=True, slots=True)
class Insertion:
    """The text to insert at the cursor, and the text right after the cursor that it replaces."""

    text: str
    replaced_after: str = ""


def fit(text: str, context: Context, counts: Counter[str] | None = None) -> Insertion | None:
    """Returns what to insert for `text`, which was generated at the cursor; None if nothing is left to suggest.

    If the rest of the line is closing brackets that the first line closes too, the insertion replaces it:
    `self):⏎  pass` replaces the `)` that the editor inserted. If such brackets only begin the rest of the line, it
    replaces them. `counts` counts, by its name, each filter that changed the text.

    The engine has ended `text` where it reached the suffix. What is left to do here comes from the editor: brackets and
    quotes that it has inserted since, and suggestions that are not worth showing.
    """
    for change in _FILTERS:
        changed = change(text, context)
        if changed != text and counts is not None and change is not trim_blanks:
            counts[change.__name__] += 1
        text = changed
    if not text.strip():
        return None
    replaced_after = _find_replaced(text, context, context.line_after.rstrip())
    return None if text == replaced_after else Insertion(text, replaced_after)


def _find_replaced(text: str, context: Context, rest: str) -> str:
    if rest and replaces_rest(text, context):
        return "" if _is_needed(rest, text, context) else rest
    return _find_closed(text, context.line_before, rest)


def _find_closed(text: str, before: str, rest: str) -> str:
    """Returns the brackets right after the cursor, with more text after them, that `text` closes already.

    The editor has inserted them since the request: `a, b)  # note` before `) + c`.
    """
    pairs = zip(match_brackets(text)[1], rest, strict=False)
    closed = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    is_better = count_faults(before + text + rest[len(closed) :]) < count_faults(before + text + rest)
    return closed if is_better else ""


def _is_needed(rest: str, text: str, context: Context) -> bool:
    """True if the rest of the line closes brackets of a later line: the engine has ended the text before it."""
    whole = context.line_before + text
    return count_faults(whole + rest) < count_faults(whole)
