"""Replaces secrets in text that is sent. The same text becomes the same text each time."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from lsp_server.context import Context, clean
from lsp_server.errors import InSecretError
from lsp_server.privacy.detectors import ends_in_secret, find_secrets
from lsp_server.privacy.named_values import Span

if TYPE_CHECKING:  # as in `lsp_server.context`
    from lsprotocol.types import Position

    from lsp_server.documents import Document

PLACEHOLDER = "REDACTED"  # the same for all secrets: it says nothing of their length or content
_BLANK = re.compile("[\ud800-\udfff\u00a0\ufeff]")  # surrogates, and what looks like a blank


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces secrets."""

    is_strict: bool = False  # a string that looks random is a secret, too
    is_on: bool = True

    def redact(self, text: str) -> str:
        """Returns a text with its secrets replaced. A block of several lines becomes one word.

        Pass whole documents or whole lines: the half of a secret is not recognised.
        """
        return self.redact_parts([text])[0]

    def redact_parts(self, parts: Sequence[str], cursor: int | None = None) -> list[str]:
        """Returns the parts of one text with its secrets replaced, also those that two parts share.

        `cursor`: the number of the part that begins at the cursor. Raises InSecretError if the cursor is in a secret or
        at its edge.
        """
        if not self.is_on:
            return [*parts]
        text, edges = "".join(parts), [*accumulate(map(len, parts), initial=0)]
        spans = self.find_spans(text)
        if cursor is not None:
            at = edges[cursor]
            line_before = text[text.rfind("\n", 0, at) + 1 : at]
            if ends_in_secret(line_before) or any(span.start <= at <= span.end for span in spans):
                raise InSecretError
        return [_replace(text, spans, start, end) for start, end in pairwise(edges)]

    def redact_stops(self, stops: Sequence[str], prompt: str) -> tuple[str, ...]:
        """Returns stop strings with secrets replaced, also those that only the prompt shows to be secrets."""
        if not self.is_on or not stops:
            return (*stops,)
        spans = self.find_spans(prompt)
        shown, secrets = _replace(prompt, spans, 0, len(prompt)), {prompt[span.start : span.end] for span in spans}
        known = re.compile("|".join(map(re.escape, sorted(secrets, key=len, reverse=True))) or "(?!)")

        def hide(stop: str) -> str:
            at = -1 if stop in shown else prompt.find(stop)  # a piece of the prompt becomes what it is there
            return known.sub(PLACEHOLDER, stop if at < 0 else _replace(prompt, spans, at, at + len(stop)))

        return tuple(self.redact(hide(stop)) for stop in stops)

    def find_spans(self, text: str) -> list[Span]:
        """Returns where the secrets are, in order. No two of them touch. What was replaced is no secret."""
        text = text.replace("\r\n", " \n").replace("\r", "\n")  # of the same length
        spans = find_secrets(_BLANK.sub(" ", text), self.is_strict)
        return [span for span in spans if text[span.start : span.end] != PLACEHOLDER]


# Around what is sent: longer than tokens are, and enough lines to know those of a key, or a value below its name.
_MARGIN_LINES = 4
_MARGIN_CHARS = 2048


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Text of one document around the cursor, in its order. Only the context is sent."""

    context: Context
    head: str = ""  # text before the context that may be the beginning of a secret
    tail: str = ""  # text after it that may be the end of one

    def redact(self, redactor: Redactor) -> Context:
        """Returns the context without secrets. Raises InSecretError."""
        parts = self.head, self.context.prefix, self.context.suffix, self.tail
        _, prefix, suffix, _ = redactor.redact_parts(parts, cursor=2)
        return Context(prefix, suffix)


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


def _replace(text: str, spans: list[Span], start: int, end: int) -> str:
    """Returns a part of the text, with the placeholder for what it has of each span."""
    parts = []
    for span in spans:
        if span.start < end and span.end > start:
            parts += [text[start : max(start, span.start)], PLACEHOLDER]
            start = min(end, span.end)
    return "".join([*parts, text[start:end]])
