"""Where a completion ends: after a line, after an indented block, or before a stop string."""

import re
import sys
from dataclasses import dataclass, field
from itertools import chain

from inference.protocol.completion import Extent

_BRACKETS = ("{", "(", "[")
_OPENERS = (":", *_BRACKETS)
_CLOSERS = (")", "]", "}")


_HEADER = re.compile(
    r"[ \t]*(?:async[ \t]+)?(?:def|class|if|elif|else|for|while|with|try|except|finally|match|case)\b[^\n]*:"
    r"[ \t]*(?:#.*)?$",
    re.MULTILINE,
)
_DEFINITION = re.compile(r"^(?:def|class)\b", re.MULTILINE)
_NEAR_CHARS = 8000  # before the cursor; the code is read from a definition in the first column on
_FIRST_WORD = re.compile(r"\s*(?:async\s+)?(\w*)")
_AFTER = {  # what a clause belongs to, in the same column
    "else": {"if", "elif", "for", "while", "except"},
    "elif": {"if", "elif"},
    "except": {"try", "except"},
    "finally": {"try", "except", "else"},
    "case": {"case"},  # or, one level deeper, `match`
}
_CLAUSE = re.compile(r"(else|elif|except|finally)\b[^:]*:|(case)\b.*:\s*$")
_BRACKET = re.compile(r"[()\[\]{}]")
_STATEMENT = re.compile(
    r"(?:def|class|return|import|with|while|try|raise|pass|assert|del)\b|@\w"
)  # none is in brackets
_STRING = re.compile(
    r"""(?P<quotes>\"{3}|'{3})(?s:.*?)(?:(?P=quotes)|(?P<open>\Z))|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(?:^|(?<=\s))\#[^\n]*"""
)


@dataclass(frozen=True, slots=True)
class PythonCode:
    """The lines of Python above the cursor's line, by which it is decided what may follow. See `_read_lines`."""

    above: tuple[str, ...]
    line_before: str

    def has_place(self, text: str, start: int) -> bool:
        """Returns whether a line of the completion may stand where it is. `start`: where it starts in `text`.

        It may not if it returns to a column in which no block is, if it leaves a block without what that needs, as a
        decorator or `try` does, or if it is a clause of no statement.
        """
        lines = _read_lines(self.line_before + text[:start])[0]
        line = (self.line_before if not start else "") + text[start:].partition("\n")[0]
        column, body = find_indent(line), line.lstrip()
        if body.startswith((*_CLOSERS, "#")) or (start and self.is_inside(text[:start], body)):
            return True
        found = _CLAUSE.match(body)
        clause = found and (found[1] or found[2])
        nearest, is_first = sys.maxsize, True
        for each in chain(reversed(lines if start else []), reversed(self.above)):
            code = each.lstrip()
            if not code:
                continue
            at, header = find_indent(each), _HEADER.match(each)
            if is_first and ((at > column and code.startswith("@")) or (at >= column and header)):
                return False  # a definition or a block is missing
            found = _FIRST_WORD.match(each)
            word = found[1] if found else ""
            if at > column:
                if at < nearest and word == "try":
                    return False
            elif at == column:
                if word == "try" and header and clause is None:
                    return any(each.startswith(body[: len(each)]) for each in ("except", "finally"))
                return clause is None or word in _AFTER[clause]
            else:
                return word == "match" if clause == "case" else clause is None and is_first
            nearest, is_first = min(nearest, at), False
        return clause is None and (column == 0 or is_first)

    def is_inside(self, text: str, line: str) -> bool:
        """Returns whether a line after `text` is in brackets or a string that it opened, or continues its last line."""
        _, is_incomplete, has_open_string = _read_lines(self.line_before + text)
        return has_open_string or (is_incomplete and not _STATEMENT.match(line))


def _read_lines(code: str) -> tuple[list[str], bool, bool]:
    """Returns the logical lines of code with empty strings and no comments, and whether the last one is incomplete.

    The third value says whether a string of several lines is open.

    A line that only a statement can begin is in no brackets: others above it were never closed.
    """
    code = code.removesuffix("\n")
    has_open_string = any(found["open"] is not None for found in _STRING.finditer(code))
    lines, depth, is_continued = list[str](), 0, False
    for line in _STRING.sub(lambda found: "" if found[0].startswith("#") else "''", code).split("\n"):
        if (depth or is_continued) and not _STATEMENT.match(line.lstrip()):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
            depth = 0
        for char in _BRACKET.findall(line):
            depth = max(0, depth + (1 if char in "([{" else -1))
        is_continued = line.rstrip("\r").endswith("\\")
    return lines, bool(depth) or is_continued, has_open_string


def read_python(prefix: str) -> PythonCode | None:
    """Returns the code before the cursor; None if it does not look like Python, or the cursor is in a string."""
    outermost = _DEFINITION.search(prefix, max(0, len(prefix) - _NEAR_CHARS))
    prefix = prefix[outermost.start() :] if outermost and len(prefix) > _NEAR_CHARS else prefix
    start = prefix.rfind("\n") + 1
    above, is_incomplete, has_open_string = _read_lines(prefix[:start])
    line = prefix[start:]
    if is_incomplete:  # the cursor's line may be the end of a longer one
        (*above, line), is_incomplete, has_open_string = _read_lines(prefix)
    looks_like_python = any(map(_HEADER.match, [*above, line]))
    return None if is_incomplete or has_open_string or not looks_like_python else PythonCode(tuple(above), line)


@dataclass(frozen=True, slots=True)
class LineRule:
    """Ends the completion before the first line break."""

    code: PythonCode | None = field(default=None, compare=False)

    def find_end(self, text: str, line_start: int = 0) -> int | None:
        """The end of the completion in `text`, or None while it may continue. `line_start`: no line before ends it."""
        if self.code is not None and _is_out_of_place(self.code, text, 0):
            return 0
        end = text.find("\n", line_start)
        return None if end < 0 else _without_cr(text, end)

    def count_settled(self, text: str) -> int:
        """How many of the first characters of a text without an end stay, however it goes on."""
        return 0 if _may_be_out_of_place(self.code, text, 0) else _without_cr(text, len(text))


@dataclass(frozen=True, slots=True)
class BlockRule:
    """Ends the completion before the first line that is indented less than the block.

    In Python it also ends before a line that cannot stand where it is, and not in brackets and strings of its own.
    """

    min_indent: int  # the minimum indentation of the block's lines, in columns
    closes: bool  # a line that is indented less, begins with a closing bracket and opens none is the last line
    code: PythonCode | None = field(default=None, compare=False)

    def find_end(self, text: str, line_start: int = 0) -> int | None:
        """The end of the completion in `text`, or None while it may continue. `line_start`: no line before ends it."""
        if self.code is not None and _is_out_of_place(self.code, text, 0):
            return 0
        start = line_start or text.find("\n") + 1
        while start:
            end = text.find("\n", start)
            line = text[start : len(text) if end < 0 else end]
            body = line.lstrip(" \t\r")
            is_outside = body and find_indent(line) < self.min_indent
            if is_outside and self.code is not None:
                is_outside = not self.code.is_inside(text[:start], body)
            if is_outside:
                if not (self.closes and body.startswith(_CLOSERS)):
                    return len(text[:start].rstrip())
                if end >= 0 and not line.rstrip().endswith(_BRACKETS):  # `} else {` is in the middle
                    return _without_cr(text, end)
            elif self.code is not None and _is_out_of_place(self.code, text, start):
                return len(text[:start].rstrip())
            start = end + 1
        return None

    def count_settled(self, text: str) -> int:
        """How many of the first characters of a text without an end stay, however it goes on."""
        line_start = text.rfind("\n") + 1
        line = text[line_start:]
        if _may_be_out_of_place(self.code, text, line_start):
            return len(text[:line_start].rstrip())
        if self.min_indent == 0 and self.code is None:  # nothing is indented less
            return len(text)
        is_outside = line_start > 0 and line.lstrip(" \t\r") and find_indent(line) < self.min_indent
        if is_outside and self.code is not None and not line.lstrip().startswith(_CLOSERS):
            return len(text[:line_start].rstrip())
        return _without_cr(text, len(text)) if is_outside else len(text.rstrip())


def _is_out_of_place(code: PythonCode, text: str, start: int) -> bool:
    line = text[start:].partition("\n")[0]
    if start == 0 and (code.line_before.strip() or _CLAUSE.match(line.lstrip()) is None):
        return False  # it may continue the cursor's line, whose indentation is the user's
    return line.strip() != "" and not code.has_place(text, start)


def _may_be_out_of_place(code: PythonCode | None, text: str, start: int) -> bool:
    line = text[start:].lstrip()
    return (
        code is not None
        and line != ""
        and (start > 0 or not code.line_before.strip())
        and any(each.startswith(line) or re.match(rf"{each}\b", line) for each in _AFTER)
    )


def _without_cr(text: str, line_feed: int) -> int:
    """The end of the line before the line feed, without a carriage return."""
    return len(text[:line_feed].removesuffix("\r"))


def build_extent_rule(extent: Extent, prefix: str, suffix: str) -> LineRule | BlockRule:
    """The rule for a completion between `prefix` and `suffix`."""
    code = read_python(prefix)
    if extent is Extent.UNLIMITED:
        return BlockRule(0, closes=False, code=code)  # no line is indented less
    line = prefix[prefix.rfind("\n") + 1 :]
    line_remainder = suffix.partition("\n")[0].strip()
    opens = line.rstrip().endswith(_OPENERS)
    above = prefix[: len(prefix) - len(line)].rstrip()
    in_new_block = not line.strip() and above.endswith(_OPENERS)
    if extent is Extent.SINGLE_LINE or (extent is Extent.AUTO and (line_remainder or not (opens or in_new_block))):
        return LineRule(code)
    if opens:
        return BlockRule(find_indent(code.line_before if code else line) + 1, closes=True, code=code)
    if in_new_block:
        header = (
            next((each for each in reversed(code.above) if each.strip()), "") if code else above.rpartition("\n")[2]
        )
        return BlockRule(find_indent(header) + 1, closes=True, code=code)
    return BlockRule(find_indent(line), closes=False, code=code)


def find_indent(line: str) -> int:
    """The indentation of the line in columns; a tab moves to the next multiple of eight."""
    expanded = line.expandtabs(8)
    return len(expanded) - len(expanded.lstrip())


def find_stop(text: str, stops: tuple[str, ...], num_added: int | None = None) -> int | None:
    """The start of the first stop string in the text, or None. `num_added`: there was none before these characters."""
    added_at = 0 if num_added is None else len(text) - num_added
    found = [at for at in (text.find(stop, max(added_at - len(stop) + 1, 0)) for stop in stops) if at >= 0]
    return min(found, default=None)


def count_stable(text: str, stops: tuple[str, ...]) -> int:
    """How many of the first characters cannot be part of a stop string that is still incomplete."""
    return min((find_beginning(text, stop) for stop in stops), default=len(text))


def find_beginning(text: str, wanted: str, start: int = 0) -> int:
    """Where `wanted` may begin in `text[start:]`: it is there, but not yet whole. The end of the text if nowhere."""
    at = text.find(wanted[0], max(len(text) - len(wanted) + 1, start))
    while at >= 0:
        if wanted.startswith(text[at:]):
            return at
        at = text.find(wanted[0], at + 1)
    return len(text)
