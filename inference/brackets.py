"""Brackets and quotes in code: which are open, and which close nothing.

Those in string literals count, too, but for the strings of the cursor's line.
"""

import re

CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
_OPENER_OF = {closer: opener for opener, closer in CLOSER_OF.items()}
CLOSERS = frozenset(CLOSER_OF.values())
QUOTES = "\"'`"
_ANY = re.compile(r"[()\[\]{}]")


def match_brackets(text: str) -> tuple[str, str]:
    """Returns the closing brackets that `text` lacks, and those in it that close nothing."""
    lost, opened, unopened = _match(text)
    return lost + opened, unopened


def _match(text: str) -> tuple[str, str, str]:
    """Returns the closing brackets that are lacking before the last line and in it, and those that close nothing.

    What is in brackets is indented more than the line where they open. So a bracket counts as never closed once a line
    is indented less; otherwise one in a string literal would be closed by any later bracket.
    """
    opened: list[tuple[str, int]] = []  # closing brackets, with the indentation of the line where they opened
    lost = unopened = ""
    for line in text.split("\n"):
        body = line.lstrip()
        indent = len(line) - len(body)
        least = indent + body.startswith(tuple(CLOSERS))
        while body and opened and opened[-1][1] >= least:
            lost += opened.pop()[0]
        for char in _ANY.findall(body):
            if char in CLOSER_OF:
                opened.append((CLOSER_OF[char], indent))
            elif opened and opened[-1][0] == char:
                opened.pop()
            else:
                unopened += char
    return lost, "".join(closer for closer, _ in opened), unopened


_OPENERS = "".join(CLOSER_OF)
_ALL_CLOSERS = "".join(CLOSERS) + QUOTES
_ENDS = re.compile(f"[,{re.escape(_ALL_CLOSERS)}]")


def fit_line(before: str, line: str, after: str) -> tuple[int, int]:
    """Returns how much of `line` to insert between two texts, and how many characters after it to replace.

    An editor closes brackets and quotes, and a model may close them, too, or end before it has closed its own. So of
    all beginnings of `line` that end before a comma, bracket or quote, each in place of some of the closers after it
    that it has itself, it is the one that leaves the fewest open or surplus; of those, the one with the most text.
    """
    rest, _, below = after.partition("\n")
    line_before = before[before.rfind("\n") + 1 :]
    opened = "".join(_OPENER_OF[closer] for closer in _match(before.removesuffix(line_before.lstrip()))[1])
    closed = _match(below)[2]

    def count(choice: tuple[int, int]) -> tuple[int, int, int]:
        end, num_replaced = choice
        kept = line[:end] if num_replaced < len(rest) else line[:end].rstrip().rstrip(_OPENERS)  # of a block
        code, num_open = _split_strings(line_before.lstrip() + kept + rest[num_replaced:])
        return count_bracket_faults(opened + code + closed) + num_open, num_replaced - end, num_replaced

    ends = {0, len(line), *(found.start() for found in _ENDS.finditer(line))}
    closers = rest[: len(rest) - len(rest.lstrip(_ALL_CLOSERS))]
    choices = ((end, num) for end in ends for num in range(len(closers) + 1) if _has(line[:end], closers[:num]))
    return min(choices, key=count)


def _has(text: str, chars: str) -> bool:
    """True if the characters stand in the text in this order."""
    left = iter(text)
    return all(char in left for char in chars)


def count_bracket_faults(text: str) -> int:
    """The brackets that are never closed, and those that close nothing."""
    return sum(map(len, match_brackets(text)))


def count_faults(line: str) -> int:
    """Those, and a string that is left open."""
    return count_bracket_faults(line) + count_quote_faults(line)


# Before a letter, an apostrophe after a letter and a lifetime of Rust begin no string.
_QUOTE = re.compile(r"""["`]|'(?!\w)|((?<![\w&<])|(?<=\b[bfru]))'""", re.IGNORECASE)
_STRINGS = {quote: re.compile(rf"(?:\\.|[^\\{quote}])*{quote}") for quote in QUOTES}


def count_quote_faults(line: str) -> int:
    """1 if a string is left open, 0 otherwise."""
    return _split_strings(line)[1]


def _split_strings(line: str) -> tuple[str, int]:
    """Returns a line without its strings, and 1 if one is left open, 0 otherwise."""
    code, at = "", 0
    while (quote := _QUOTE.search(line, at)) is not None:
        string = _STRINGS[quote[0]].match(line, quote.end())
        if string is None:
            return code + line[at:], 1
        code, at = code + line[at : quote.start()], string.end()
    return code + line[at:], 0
