"""Brackets and quotes in code: which are open, and which close nothing.

Those in string literals count, too, but for the strings of the cursor's line, unless the cursor is in brackets of one.
"""

import re
from string import punctuation

import regex

CLOSER_OF = {"(": ")", "[": "]", "{": "}", "⟨": "⟩"}
_OPENER_OF = {closer: opener for opener, closer in CLOSER_OF.items()}
CLOSERS = frozenset(CLOSER_OF.values())
QUOTES = "\"'`"
_ANY = re.compile(r"[()\[\]{}⟨⟩]")
_OPEN_ANGLE, _CLOSED_ANGLE = re.compile(r"(?<!<)<(?![\s<=-])"), re.compile(r"(?<![-=\s])>(?!=)")


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
_QUOTES = rf"([{QUOTES}])\1\1"  # three are one
_MAX_CLOSERS, _MAX_ENDS = 16, 64  # more than code has; each pair of them is tried
_ENDS = re.compile(rf"{_QUOTES}|[,{re.escape(_ALL_CLOSERS)}]")


def fit_line(before: str, line: str, after: str) -> tuple[int, int]:
    """Returns how much of `line` to insert between two texts, and how many characters after it to replace.

    An editor closes brackets and quotes, and a model may close them, too, or end before it has closed its own. So this
    tries each prefix of `line` that ends before a comma, bracket or quote, with each number of closers replaced that it
    has itself, and returns the pair with the fewest unbalanced brackets; of those, the one with the most text.
    If it replaces all closers, it also replaces what stands after them as at its own end: `:`, `;`.
    `<` and `>` are brackets where an editor has closed one: `Vec<▏>`.
    """
    rest, _, below = after.partition("\n")
    line_before = before[before.rfind("\n") + 1 :]
    opened = "".join(_OPENER_OF[closer] for closer in _match(before.removesuffix(line_before.lstrip()))[1])
    if rest.startswith(">") and _match(_mark_angles(line_before))[1].startswith("⟩"):
        line_before, line, rest = map(_mark_angles, (line_before, line, rest))
    closed = _match(below)[2]
    closers = rest[: len(rest) - len(rest.lstrip(_ALL_CLOSERS))][:_MAX_CLOSERS]
    string = _split_strings(line_before)[1]
    is_nested = bool(string) and not CLOSERS.isdisjoint(closers.partition(string)[0])  # in brackets of it: `f"{▏}"`

    def count_line(whole: str) -> int:
        code, left_open = _split_strings(whole)
        return count_bracket_faults(opened + code + closed) + bool(left_open)

    def count(choice: tuple[int, int]) -> tuple[int, int, int, int]:
        end, num_replaced = choice
        kept = line[:end] if num_replaced < len(rest) else line[:end].rstrip().rstrip(_OPENERS)  # of a block
        whole = line_before.lstrip() + kept + rest[num_replaced:]
        num_nested = count_line(whole.replace(string, "")) if is_nested else 0
        return count_line(whole), num_nested, num_replaced - end, num_replaced

    ends = {0, len(line), *[found.start() for found in _ENDS.finditer(line)][-_MAX_ENDS:]}
    nums = [0, *(found.end() for found in _ENDS.finditer(closers))]
    end, num = min(((end, num) for end in ends for num in nums if _has(line[:end], closers[:num])), key=count)
    return end, num + (_count_shared(line[:end], rest[num:].rstrip()) if 0 < num == len(closers) else 0)


def _mark_angles(text: str) -> str:
    """Returns the text with other brackets for those of types and tags; `a < b`, `->` and `>=` have none."""
    return _CLOSED_ANGLE.sub("⟩", _OPEN_ANGLE.sub("⟨", text))


def _has(text: str, closers: str) -> bool:
    """True if the closers stand in the text in this order. An apostrophe before a letter is none."""
    text = re.sub(r"'(?=\w)", "", text)
    for closer in _ENDS.finditer(closers):
        _, found, text = text.partition(closer[0])
        if not found:
            return False
    return True


def _count_shared(text: str, rest: str) -> int:
    """How long the beginning of `rest` is with which the text ends: all of it, or signs, without open brackets."""
    sizes = (len(rest), *range(len(rest) - len(rest.lstrip(punctuation)), 0, -1))
    return next((size for size in sizes if text.endswith(rest[:size]) and not count_faults(rest[:size])), 0)


def count_bracket_faults(text: str) -> int:
    """The brackets that are never closed, and those that close nothing."""
    return sum(map(len, match_brackets(text)))


def count_faults(line: str) -> int:
    """Those, and a string that is left open."""
    return count_bracket_faults(line) + bool(_split_strings(line)[1])


# Before a letter, an apostrophe after a letter and a lifetime of Rust begin no string.
_QUOTE = regex.compile(rf"{_QUOTES}|[\"`]|'(?!\w)|((?<![\w&<])|(?<=\b[bfru]))'", regex.IGNORECASE)
_STRINGS = {  # none is right before an empty one
    quote * num: re.compile(rf"(?:\\.|(?!{quote * num})[^\\])*{quote * num}(?!{quote * 2})")
    for quote in QUOTES
    for num in (1, 3)
}


def _split_strings(line: str) -> tuple[str, str]:
    """Returns a line without its strings, and the quotes of the one that is left open, if any."""
    code, at = "", 0
    while (quote := _QUOTE.search(line, at)) is not None:
        string = _STRINGS[quote[0]].match(line, quote.end())
        if string is None:
            return code + line[at:], quote[0]
        code, at = code + line[at : quote.start()], string.end()
    return code + line[at:], ""
