"""Replaces secrets in text that is sent. The same text becomes the same text each time."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsp_server.context import Context, clean
from lsp_server.privacy.detectors import ends_in_secret, find_secrets
from lsp_server.privacy.named_values import Span

if TYPE_CHECKING:  # as in `lsp_server.context`
    from lsprotocol.types import Position

    from lsp_server.documents import Document

PLACEHOLDER = "REDACTED"  # the same for all secrets: it says nothing of their length or content
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces secrets."""

    is_strict: bool = False  # a string that looks random is a secret, too

    def redact(self, text: str) -> str:
        """Returns a text with its secrets replaced. A block of several lines becomes one word.

        Pass whole documents or whole lines: the half of a secret is not recognised.
        """
        return replace_spans(text, self.find_spans(text))

    def find_spans(self, text: str) -> list[Span]:
        """Returns where the secrets are, in order. No two of them touch."""
        text = text.replace("\r\n", " \n").replace("\r", "\n")  # of the same length
        return find_secrets(_SURROGATE.sub(" ", text), self.is_strict)


def replace_spans(text: str, spans: list[Span]) -> str:
    """Returns the text with each span replaced by the placeholder."""
    if not spans:
        return text
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], PLACEHOLDER]
        at = span.end
    return "".join([*parts, text[at:]])


# Around what is sent: longer than tokens are, and enough lines to know those of a key, or a value below its name.
_MARGIN_LINES = 4
_MARGIN_CHARS = 2048


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
        is_typed = ends_in_secret(self.context.line_before)
        if is_typed or any(span.start <= cursor <= span.end for span in spans):
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
    """Returns the cut part of the first line, and some lines above it."""
    num_above = context.prefix.count("\n")
    first = number - num_above
    cut = 0 if num_above else len(before) - len(context.prefix)
    above = document.lines[max(0, first - _MARGIN_LINES) : first] if cut < _MARGIN_CHARS else []
    return clean(("".join(above) + before[max(0, cut - _MARGIN_CHARS) : cut])[-_MARGIN_CHARS:])


def _find_tail(document: "Document", number: int, before: str, context: Context) -> str:
    """Returns the rest of the last line, and some lines below it."""
    num_below = context.suffix.count("\n")
    last = number + num_below
    shown = len(context.suffix) - (context.suffix.rfind("\n") + 1)
    start = shown if num_below else len(before) + shown
    below = document.lines[last + 1 : last + 1 + _MARGIN_LINES]
    return clean((document.lines[last][start : start + _MARGIN_CHARS] + "".join(below))[:_MARGIN_CHARS])


def _replace(text: str, spans: list[Span], start: int, end: int) -> str:
    """Returns a part of the text, with what it has of the spans replaced."""
    clipped = [Span(max(span.start, start) - start, min(span.end, end) - start) for span in spans]
    return replace_spans(text[start:end], [span for span in clipped if span.start < span.end])
