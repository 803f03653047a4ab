"""The names on the cursor's line of which more should be known."""

import re
from dataclasses import dataclass

_MAX_CHARS = 400  # of the line that are read; it may be one of megabytes
_WORD_AT_END = re.compile(r"[^\W\d]\w*\Z")
_BRACKET = re.compile(r"(?:([^\W\d]\w*)[ \t]*)?\(|\)")


@dataclass(frozen=True, slots=True)
class Words:
    """The names on the cursor's line."""

    typed: str  # the one that ends at the cursor; empty if none does
    called: str  # the function or class whose arguments are being written; empty if none is known


def read_words(line_before: str) -> Words:
    """Returns the names in the text of the line before the cursor. A bracket in a string counts, too."""
    line_before = line_before[-_MAX_CHARS:]
    typed = _WORD_AT_END.search(line_before)
    open_calls: list[str] = []
    for match in _BRACKET.finditer(line_before):
        if match[0] == ")":
            del open_calls[-1:]
        else:
            open_calls.append(match[1] or "")
    return Words("" if typed is None else typed[0], open_calls[-1] if open_calls else "")
