"""Replaces secrets in text that is sent. The same text becomes the same text each time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsp_server.context import Context, clean
from lsp_server.privacy.detectors import (
    MAX_BLOCK_LINES,
    LineScanner,
    Span,
    begins_block,
    find_blocks,
    merge,
)

if TYPE_CHECKING:  # as in `lsp_server.context`
    from lsprotocol.types import Position

    from lsp_server.documents import Document

PLACEHOLDER = "REDACTED"  # the same for all secrets: it says nothing of their length or content


class Redactor:
    """Replaces secrets. Slow to make; then a line costs tens of microseconds the first time, and then less than one."""

    def __init__(self) -> None:
        self._scanner = LineScanner()

    def redact(self, text: str) -> str:
        """Returns a text with its secrets replaced. A block of several lines becomes one word.

        Pass whole documents or whole lines: the half of a secret is not recognised.
        """
        return replace_spans(text, self.find_spans(text))

    def find_spans(self, text: str) -> list[Span]:
        """Returns where the secrets are, in order. No two of them touch."""
        text = text.replace("\r\n", " \n").replace("\r", "\n")  # of the same length
        spans = list(find_blocks(text))
        at = 0
        for line in text.split("\n"):
            if found := self._scanner.find_spans(line):
                spans += [Span(at + span.start, at + span.end) for span in found]
            at += len(line) + 1
        return merge(spans)


def replace_spans(text: str, spans: list[Span]) -> str:
    """Returns the text with each span replaced by the placeholder."""
    if not spans:
        return text
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], PLACEHOLDER]
        at = span.end
    return "".join([*parts, text[at:]])


_MARGIN_CHARS = 2048  # of a line that is cut: longer than tokens are


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Text of one document in its order. Only the context is sent."""

    head: str  # text before the context that may be the beginning of a secret
    context: Context
    tail: str  # text after it that may be the end of one

    def redact(self, redactor: Redactor) -> Context | None:
        """Returns the context without secrets; None if the cursor is in one or at its edge."""
        text = self.head + self.context.prefix + self.context.suffix + self.tail
        spans = redactor.find_spans(text)
        start, cursor, end = len(self.head), len(text) - len(self.tail) - len(self.context.suffix), len(text)
        end -= len(self.tail)
        if any(span.start <= cursor <= span.end for span in spans):
            return None
        if not spans:
            return self.context
        return Context(_replace(text, spans, start, cursor), _replace(text, spans, cursor, end))


def cut_excerpt(document: "Document", position: "Position", context: Context) -> Excerpt:
    """Returns the excerpt around `context`, which `cut_context` returned for the position. Raises OutOfStepError."""
    number, before, _ = document.split_at(position)
    head = _find_head(document, number, before, context)
    return Excerpt(head, context, _find_tail(document, number, before, context))


def _find_head(document: "Document", number: int, before: str, context: Context) -> str:
    """Returns the cut part of the first line, and the lines above it from where a key block may have begun."""
    num_above = context.prefix.count("\n")
    cut = 0 if num_above else len(before) - len(context.prefix)
    if cut > _MARGIN_CHARS:
        return clean(before[cut - _MARGIN_CHARS : cut])
    first = number - num_above
    above = range(first - 1, max(-1, first - 1 - MAX_BLOCK_LINES), -1)
    begin = next((at for at in above if begins_block(document.lines[at])), first)
    return clean("".join(document.lines[begin:first]) + before[:cut])


def _find_tail(document: "Document", number: int, before: str, context: Context) -> str:
    """Returns the rest of the last line."""
    num_below = context.suffix.count("\n")
    shown = len(context.suffix) - (context.suffix.rfind("\n") + 1)
    start = shown if num_below else len(before) + shown
    rest = document.lines[number + num_below][start : start + _MARGIN_CHARS]
    return clean(rest.partition("\n")[0].partition("\r")[0])


def _replace(text: str, spans: list[Span], start: int, end: int) -> str:
    """Returns a part of the text, with what it has of the spans replaced."""
    clipped = [Span(max(span.start, start) - start, min(span.end, end) - start) for span in spans]
    return replace_spans(text[start:end], [span for span in clipped if span.start < span.end])
