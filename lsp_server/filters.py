"""What is done to the model's text before an editor shows it: one small function for each fault, in a fixed order."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

from inference.brackets import CLOSERS, QUOTES, count_faults, match_brackets
from lsp_server.context import Context
from lsp_server.indentation import match_indentation
from lsp_server.privacy.redaction import PLACEHOLDER

# Control characters other than \t and \n, those that make an editor show text in another order than it is, and the one
# that stands for bytes of the model that are not UTF-8.
_UNSAFE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffd]")
_MAY_REPEAT = re.compile(r"\s*(?:await\s+)?[\w.:>-]+\(.*\);?|.*,")
_LAST_WORD = re.compile(r"\w+\Z")


def cut_at_unsafe(text: str, _context: Context) -> str:
    """Cuts `text` before the first control character or change of the writing direction."""
    return _UNSAFE.split(text, maxsplit=1)[0]


def cut_at_placeholder(text: str, context: Context) -> str:
    """Cuts `text` before a copy of that word and its quote, unless the file itself has the word."""
    if PLACEHOLDER not in text or PLACEHOLDER in context.prefix or PLACEHOLDER in context.suffix:
        return text
    return text.partition(PLACEHOLDER)[0].rstrip(QUOTES)


def drop_repeated_below(text: str, context: Context) -> str:
    """Drops a suggestion with which the cursor's line equals the lines right below, indentation included."""
    if context.line_after.strip():
        return text
    completed = context.line_before + text.rstrip()
    below = "\n".join(line.rstrip() for line in context.suffix.split("\n") if line.strip())
    return "" if below == completed or below.startswith(completed + "\n") else text


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


def replaces_rest(text: str, context: Context) -> bool:
    """True if the rest of the line is closing brackets, and the first line of `text` closes those already."""
    before, after = context.line_before, context.line_after.rstrip()
    line = text.partition("\n")[0]
    if not all(char in CLOSERS for char in after) or not match_brackets(line)[1].startswith(after):
        return False
    return count_faults(before + line) < count_faults(before + line + after)


def cut_to_line(text: str, context: Context) -> str:
    """In the middle of a line, keeps the first line, unless a block follows that closes the line's own brackets."""
    if not context.line_after.strip() or ("\n" in text.strip() and replaces_rest(text, context)):
        return text
    return text.partition("\n")[0]


def trim_overlap(text: str, context: Context) -> str:
    """In the middle of a line, removes brackets and quotes from the end that the rest of the line begins with.

    The editor may have inserted them since the request; the engine has ended the text before what stood there. Of
    several ends, it is the one that leaves the fewest brackets and quotes open, and of those the longest: `f(g(` needs
    the bracket of `x)` before `)`, and one of `h(x))` before `))`.
    """
    line, before, after = text.rstrip(), context.line_before, context.line_after.rstrip()
    if not after or "\n" in line:
        return text
    num_closers = len(line) - len(line.rstrip("".join(CLOSERS) + QUOTES))
    lengths = [length for length in range(num_closers + 1) if after.startswith(line[len(line) - length :])]
    best = max(lengths, key=lambda length: (-count_faults(before + line[: len(line) - length] + after), length))
    return line[: len(line) - best] if best else text


def trim_blanks(text: str, context: Context) -> str:
    """Removes white space at the end, but not where it separates `text` from a word or quote: `not ` before `x`."""
    after = context.line_after.rstrip()
    separates = bool(after) and "\n" not in text and (is_word(context.line_after[0]) or context.line_after[0] in QUOTES)
    return text if separates and text.strip() else text.rstrip()


def is_word(char: str) -> bool:
    """True for a character of a name."""
    return char.isalnum() or char == "_"


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


def fit(text: str, context: Context) -> Insertion | None:
    """Returns what to insert for `text`, which was generated at the cursor; None if nothing is left to suggest.

    If the rest of the line is closing brackets that the first line closes too, the insertion replaces it:
    `self):⏎  pass` replaces the `)` that the editor inserted. If such brackets only begin the rest of the line, it
    replaces them.

    The engine has ended `text` where it reached the suffix. What is left to do here comes from the editor: brackets and
    quotes that it has inserted since, and suggestions that are not worth showing.
    """
    for change in _FILTERS:
        text = change(text, context)
    if not text.strip():
        return None
    replaced_after = _find_replaced(text, context, context.line_after.rstrip())
    return None if text == replaced_after else Insertion(text, replaced_after)


def fit_all(texts: Iterable[str], context: Context) -> tuple[Insertion, ...]:
    """Returns what is left to insert of some texts, in their order, without what stands there twice."""
    fitted = (fit(text, context) for text in texts)
    return tuple(dict.fromkeys(each for each in fitted if each is not None))


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
