"""Which line cannot stand where it is, in Python alone: in other languages, `case 1:` may be followed by anything."""

import re
import sys
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath

from inference.brackets import CLOSERS

_HEADER = re.compile(
    r"[ \t]*(?:async[ \t]+)?(?:def|class|if|elif|else|for|while|with|try|except|finally|match|case)\b[^\n]*:"
    r"[ \t]*(?:#.*)?$",
    re.MULTILINE,
)
_FUNCTION = re.compile(r"[ \t]*(?:async[ \t]+)?def[ \t]+\w+[\[(].*:[ \t]*$")  # other languages have no colon there
_PYTHON, _UNTOLD = (".py", ".pyi", ".pyw"), ("", ".ipynb")
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
        line = (self.line_before if not start else "") + text[start:].partition("\n")[0]
        column, body = find_indent(line), line.lstrip()
        if not body or (start == 0 and (self.line_before.strip() or not _CLAUSE.match(body))):
            return True  # the first line may continue the cursor's, whose indentation is the user's
        lines = _read_lines(self.line_before + text[:start])[0]
        if body.startswith((*CLOSERS, "#")) or (start and self.is_inside(text[:start], body)):
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

    def may_lack_place(self, text: str, start: int) -> bool:
        """Returns whether an incomplete line may turn out to have none."""
        line = text[start:].lstrip()
        is_own = line != "" and (start > 0 or not self.line_before.strip())
        return is_own and any(each.startswith(line) or re.match(rf"{each}\b", line) for each in _AFTER)

    def is_inside(self, text: str, line: str) -> bool:
        """Returns whether a line after `text` is in brackets or a string that it opened, or continues its last line."""
        _, is_incomplete, has_open_string = _read_lines(self.line_before + text)
        return has_open_string or (is_incomplete and not _STATEMENT.match(line))


def _read_lines(code: str) -> tuple[list[str], bool, bool]:
    """Returns the logical lines of code with empty strings and no comments, and whether the last one is incomplete.

    The third value says whether a string of several lines is open.

    A line that only a statement can begin is in no brackets: others above it were never closed.
    """
    has_open_string, lines, depth, is_continued = False, list[str](), 0, False

    def empty(found: re.Match[str]) -> str:
        nonlocal has_open_string
        has_open_string = found["open"] is not None
        return "" if found[0].startswith("#") else "''"

    for line in _STRING.sub(empty, code.removesuffix("\n")).split("\n"):
        if (depth or is_continued) and not _STATEMENT.match(line.lstrip()):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
            depth = 0
        for char in _BRACKET.findall(line):
            depth = max(0, depth + (1 if char in "([{" else -1))
        is_continued = line.rstrip("\r").endswith("\\")
    return lines, bool(depth) or is_continued, has_open_string


def read_python(prefix: str, path: str) -> PythonCode | None:
    """Returns the code before the cursor; None if it is no Python, or the cursor is in a string.

    The language follows from the ending of the path. Without one, the code is Python if it has a function of Python.
    """
    ending = PurePosixPath(path).suffix.lower()
    if ending not in (*_PYTHON, *_UNTOLD):
        return None
    outermost = _DEFINITION.search(prefix, max(0, len(prefix) - _NEAR_CHARS))
    prefix = prefix[outermost.start() :] if outermost and len(prefix) > _NEAR_CHARS else prefix
    start = prefix.rfind("\n") + 1
    above, is_incomplete, has_open_string = _read_lines(prefix[:start])
    line = prefix[start:]
    if is_incomplete:  # the cursor's line may be the end of a longer one
        (*above, line), is_incomplete, has_open_string = _read_lines(prefix)
    is_python = ending in _PYTHON or any(map(_FUNCTION.match, [*above, line]))
    return None if is_incomplete or has_open_string or not is_python else PythonCode(tuple(above), line)


def find_indent(line: str) -> int:
    """The indentation of the line in columns; a tab moves to the next multiple of eight."""
    expanded = line.expandtabs(8)
    return len(expanded) - len(expanded.lstrip())
