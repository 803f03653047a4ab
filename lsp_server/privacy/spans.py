"""Parts of a text."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """From a character to before another one."""

    start: int
    end: int


def merge(spans: Iterable[Span]) -> list[Span]:
    """Returns the spans in order, with those that overlap or touch as one, and without empty ones."""
    merged: list[Span] = []
    for span in sorted(span for span in spans if span.start < span.end):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(span.end, merged[-1].end))
        else:
            merged.append(span)
    return merged
