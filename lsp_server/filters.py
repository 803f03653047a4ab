"""What is done to the model's text before an editor shows it: one small step for each fault, in a fixed order."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

import regex

from inference.brackets import QUOTES, count_bracket_faults, fit_line
from inference.likely_text import is_word
from lsp_server.context import Context
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
