"""Whether a line begins inside a text of several lines."""

import re

_QUOTES = re.compile(r'"""|\'\'\'')


def find_open_quotes(code: str, opened: str | None = None) -> str | None:
    """Returns the three quotes that are open after `code`; None if none are. `opened`: those that are open before it.

    Quotes in comments count, too.
    """
    for match in _QUOTES.finditer(code):
        if opened is None:
            opened = match[0]
        elif match[0] == opened:
            opened = None
    return opened
