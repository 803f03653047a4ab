"""Brackets and quotes in code: which are open, and which close nothing. Those in string literals count, too."""

import re

CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
CLOSERS = frozenset(CLOSER_OF.values())
QUOTES = "\"'`"
_ANY = re.compile(r"[()\[\]{}]")


def match_brackets(text: str) -> tuple[str, str]:
    """Returns the closing brackets that `text` lacks, and those in it that close nothing.

    What is in brackets is indented more than the line where they open. So a bracket counts as never closed once a line
    is indented less; otherwise one in a string literal would be closed by any later bracket.
    """
    opened: list[tuple[str, int]] = []  # closing brackets, with the indentation of the line where they opened
    lacking = unopened = ""
    for line in text.split("\n"):
        body = line.lstrip()
        indent = len(line) - len(body)
        least = indent + body.startswith(tuple(CLOSERS))
        while body and opened and opened[-1][1] >= least:
            lacking += opened.pop()[0]
        for char in _ANY.findall(body):
            if char in CLOSER_OF:
                opened.append((CLOSER_OF[char], indent))
            elif opened and opened[-1][0] == char:
                opened.pop()
            else:
                unopened += char
    return lacking + "".join(closer for closer, _ in opened), unopened


def count_bracket_faults(text: str) -> int:
    """The brackets that are never closed, and those that close nothing."""
    return sum(map(len, match_brackets(text)))


def count_faults(line: str) -> int:
    """Those, and the kinds of quotes that are left open."""
    return count_bracket_faults(line) + count_quote_faults(line)


def count_quote_faults(line: str) -> int:
    """The kinds of quotes that are left open."""
    return sum(line.count(quote) % 2 for quote in QUOTES)
