"""Selects the text of a document that is sent for a completion at a position."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsp_server.settings import Settings

if TYPE_CHECKING:  # commands have no documents, and importing lsprotocol takes as long as a completion
    from lsprotocol.types import Position

    from lsp_server.documents import Document


@dataclass(frozen=True, slots=True)
class Context:
    r"""The text around the cursor, with \n as its only line end and no lone surrogates."""

    prefix: str
    suffix: str

    @property
    def line_before(self) -> str:
        """The cursor's line up to the cursor."""
        return self.prefix[self.prefix.rfind("\n") + 1 :]

    @property
    def line_after(self) -> str:
        """The cursor's line after the cursor."""
        return self.suffix.partition("\n")[0]


def cut_context(document: "Document", position: "Position", settings: Settings, is_waited_for: bool = True) -> Context:
    """Returns the text to send for a completion at `position`, within the size limits of the settings.

    The position must be that of a Place: within the text, and not inside a code point.

    The prefix starts at `document.anchor_line`. The anchor moves only when the prefix no longer fits, or is less than
    half full, and then by at least a quarter of the limit. If it moved with each typed line, the model could reuse
    nothing that it has computed for the prefix. While nobody waits, it moves before the prefix is full, so that no
    key has to move it. Raises OutOfStepError, TooLargeError.
    """
    lines, line, before, after = document.split_with_above(position)
    free_fraction = 0 if is_waited_for else _AHEAD_FRACTION
    prefix = _cut_prefix(document, lines, line, before, settings.max_prefix_bytes, free_fraction)
    suffix = _cut_suffix(lines, line, after, settings.max_suffix_bytes)
    return Context(clean(prefix), clean(suffix))


_AHEAD_FRACTION = 1 / 8  # of the prefix; more is seldom typed without a pause


def _cut_prefix(
    document: "Document", lines: Sequence[str], line: int, before: str, max_bytes: int, free_fraction: float
) -> str:
    if _exceeds(before, max_bytes):
        document.anchor_line = line
        return _cut_long_line(before, max_bytes)
    remaining_bytes = max_bytes - _num_bytes(before)
    full_start = _find_start(lines, line, remaining_bytes - int(max_bytes * free_fraction))
    half_start = _find_start(lines, line, remaining_bytes - max_bytes // 2)
    # From full_start the window is full, from half_start half full.
    if not full_start <= document.anchor_line <= half_start:
        document.anchor_line = _find_start(lines, line, remaining_bytes - max_bytes // 4)
    return "".join(lines[document.anchor_line : line]) + before


def _find_start(lines: Sequence[str], line: int, max_bytes: int) -> int:
    """Returns the first line such that the text from it up to `line` has at most `max_bytes`."""
    while line > 0:
        max_bytes -= _num_bytes(lines[line - 1])
        if max_bytes < 0:
            break
        line -= 1
    return line


def _cut_long_line(before: str, max_bytes: int) -> str:
    """Returns the end of a line that is longer than the window.

    It starts at a multiple of a quarter of the window, so the start stays the same for many keystrokes.
    """
    step = max_bytes // 4
    start = max(0, len(before) - max_bytes)
    start += -start % step
    while _exceeds(before[start:], max_bytes):
        start += step
    return before[start:]


def _cut_suffix(lines: Sequence[str], line: int, after: str, max_bytes: int) -> str:
    if _exceeds(after, max_bytes):
        return replace_surrogates(after[:max_bytes]).encode()[:max_bytes].decode("utf-8", "ignore")
    parts, remaining_bytes = [after], max_bytes - _num_bytes(after)
    for number in range(line + 1, len(lines)):
        remaining_bytes -= _num_bytes(lines[number])
        if remaining_bytes < 0:
            break
        parts.append(lines[number])
    return "".join(parts)


# Around what is sent: longer than tokens are, and enough lines to know those of a key, or a value below its name.
_MARGIN_LINES = 4
_MARGIN_CHARS = 2048


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Text of one document around the cursor, in its order. Only the context is sent."""

    context: Context
    head: str = ""  # text before the context that may be the beginning of a secret
    tail: str = ""  # text after it that may be the end of one


def cut_excerpt(document: "Document", position: "Position", context: Context) -> Excerpt:
    """Returns the excerpt around `context`, which `cut_context` returned for the position. Raises OutOfStepError."""
    lines, number, before, _ = document.split_with_above(position)
    head = _find_head(lines, number, before, context)
    return Excerpt(context, head, _find_tail(lines, number, before, context))


def _find_head(lines: Sequence[str], number: int, before: str, context: Context) -> str:
    """Returns the cut part of the first line, and some lines above it."""
    num_above = context.prefix.count("\n")
    first = number - num_above
    cut = 0 if num_above else len(before) - len(context.prefix)
    above = lines[max(0, first - _MARGIN_LINES) : first] if cut < _MARGIN_CHARS else []
    return clean(("".join(above) + before[max(0, cut - _MARGIN_CHARS) : cut])[-_MARGIN_CHARS:])


def _find_tail(lines: Sequence[str], number: int, before: str, context: Context) -> str:
    """Returns the rest of the last line, and some lines below it."""
    num_below = context.suffix.count("\n")
    last = number + num_below
    shown = len(context.suffix) - (context.suffix.rfind("\n") + 1)
    start = shown if num_below else len(before) + shown
    below = lines[last + 1 : last + 1 + _MARGIN_LINES]
    return clean((lines[last][start : start + _MARGIN_CHARS] + "".join(below))[:_MARGIN_CHARS])


def _exceeds(text: str, max_bytes: int) -> bool:
    return len(text) > max_bytes or _num_bytes(text) > max_bytes


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def clean(text: str) -> str:
    r"""Returns text of a document as it is sent: \n as its only line end, and no lone surrogates."""
    return replace_surrogates(text.replace("\r\n", "\n").replace("\r", "\n"))


def replace_surrogates(text: str) -> str:
    """Returns `text` with each lone surrogate replaced by U+FFFD, so that it can be encoded as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
