"""Replaces secrets in text that is sent. The same text becomes the same text each time."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from lsp_server.context import Context, Excerpt
from lsp_server.errors import InSecretError
from lsp_server.privacy.detectors import ends_in_secret, find_secrets
from lsp_server.privacy.named_values import Span

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

    def redact_excerpt(self, excerpt: Excerpt) -> Context:
        """Returns the context of an excerpt without secrets. Raises InSecretError."""
        parts = excerpt.head, excerpt.context.prefix, excerpt.context.suffix, excerpt.tail
        _, prefix, suffix, _ = self.redact_parts(parts, cursor=2)
        return Context(prefix, suffix)

    def find_spans(self, text: str) -> list[Span]:
        """Returns where the secrets are, in order. No two of them touch. What was replaced is no secret."""
        text = text.replace("\r\n", " \n").replace("\r", "\n")  # of the same length
        spans = find_secrets(_BLANK.sub(" ", text), self.is_strict)
        return [span for span in spans if text[span.start : span.end] != PLACEHOLDER]


def _replace(text: str, spans: list[Span], start: int, end: int) -> str:
    """Returns a part of the text, with the placeholder for what it has of each span."""
    parts = []
    for span in spans:
        if span.start < end and span.end > start:
            parts += [text[start : max(start, span.start)], PLACEHOLDER]
            start = min(end, span.end)
    return "".join([*parts, text[start:end]])
