"""The names on the cursor's line."""

import re
from dataclasses import dataclass

_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Words:
    """The names on the cursor's line."""

    typed: str  # the one that ends at the cursor; empty if none does
    others: tuple[str, ...]  # those before it, the nearest first, then those after the cursor


def read_words(line_before: str, line_after: str) -> Words:
    """Returns the names of a line that the cursor divides."""
    before = _WORD.findall(line_before)
    typed = before.pop() if before and line_before.endswith(before[-1]) else ""
    return Words(typed, tuple(dict.fromkeys([*reversed(before), *_WORD.findall(line_after)])))
