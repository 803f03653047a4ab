"""Brackets and quotes in a line: which are open, and which of them editors insert by themselves."""

import re

_CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
_ANY_BRACKET = re.compile(r"[()\[\]{}]")
BRACKETS = frozenset(_CLOSER_OF.values())  # the closing ones
QUOTES = "\"'`"
CLOSERS = BRACKETS | frozenset(QUOTES)  # editors insert these after the cursor automatically


def count_faults(line: str) -> int:
    """The brackets that are never closed or never opened, and the kinds of quotes that are left open."""
    lacking, unopened = match_brackets(line)
    return len(lacking) + len(unopened) + sum(line.count(quote) % 2 for quote in QUOTES)


def match_brackets(text: str) -> tuple[str, str]:
    """Returns the closing brackets that `text` lacks, and those in it that were never opened.

    Brackets in string literals count too.
    """
    lacking: list[str] = []
    unopened = ""
    for char in _ANY_BRACKET.findall(text):
        if char in _CLOSER_OF:
            lacking.append(_CLOSER_OF[char])
        elif lacking and lacking[-1] == char:
            lacking.pop()
        else:
            unopened += char
    return "".join(lacking), unopened
