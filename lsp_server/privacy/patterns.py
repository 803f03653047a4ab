"""Ignore files and lists of patterns in the syntax of .gitignore, and the rule among them that excludes a path.

They are for `.midtokenignore`, the setting `exclude` and names of credentials, and for `.gitignore` where Git cannot be
asked. What a pattern excludes without regard to case is excluded, too, since a disk may show it under both names. The
library pathspec 1.1 differs from Git for a quarter of random patterns, such as `[[:alpha:]]`,
`[/a]` and those with a tab at the end, and some patterns take it years (`*a*a*a*b`). So patterns are written as
expressions for RE2 here, whose time grows with the length of the path alone.

Patterns and paths are bytes written as Latin-1, because `?` and sets mean one byte.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

_MAX_SHOWN = 60  # characters of a pattern
_MAX_BYTES = 10 * 2**20  # of an ignore file
_MAX_CHARS = 10_000  # of a pattern
_MAX_FILES = 1000  # that are kept
_MAX_COMPILED = 4096  # expressions of single patterns that are kept, of all lists
_MAX_PROGRAM_BYTES = 2**26  # of an expression; the one of a list may have thousands of patterns
_BYTE_ORDER_MARK = "\xef\xbb\xbf"
_TRAILING_BLANKS = re.compile(r"((?:\\.|[^\\])*?) *", re.DOTALL)
_WILDCARD = re.compile(r"[*?\[\\]")
_SET_ITEM = re.compile(r"\[:([^\]]*):\]|(?:\\(.)|([^\\]))(?:-(?:\\(.)|([^\]\\])))?", re.DOTALL)
_BYTES = [chr(code) for code in range(256)]
_NAMED_SETS: dict[str, Callable[[str], bool]] = {  # those of the C locale
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "blank": lambda char: char in " \t",
    "cntrl": lambda char: ord(char) < 32 or ord(char) == 127,
    "digit": str.isdecimal,
    "graph": lambda char: 32 < ord(char) < 127,
    "lower": str.islower,
    "print": str.isprintable,
    "punct": lambda char: 32 < ord(char) < 127 and not char.isalnum(),
    "space": lambda char: char in " \t\n\v\f\r",
    "upper": str.isupper,
    "xdigit": lambda char: char in "0123456789abcdefABCDEF",
}


# Expressions.
_IN_NAME = r"[^/\x00]*"  # `*`: any characters but slashes, and the mark below
_FOLDERS = "(?:.*/)?"  # `**/`: nothing, or the names of some folders and the slash after them
_ANYTHING = ".*"  # `**` at the end
_FOLDER = "\0"  # no path has this character
_NOTHING = r"[^\x00-\xff]"


@lru_cache(_MAX_COMPILED)
def compile_expression(expression: str, ignores_case: bool = False) -> Any:  # RE2's expressions have no types
    """Returns the expression, for paths as bytes. Raises ValueError if it is too long."""
    options = re2.Options()
    options.encoding, options.dot_nl, options.case_sensitive = re2.Options.Encoding.LATIN1, True, not ignores_case
    options.max_mem, options.log_errors = _MAX_PROGRAM_BYTES, False
    try:
        return re2.compile(expression.encode(), options)
    except re2.error:
        raise ValueError("the patterns are too long") from None


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of an ignore file."""

    text: str
    line: int  # from 1
    is_negated: bool
    expression: str  # of RE2, for a path relative to the folder of the ignore file; _FOLDER marks that of a folder


class Patterns:
    """Patterns in order. The last one that matches a path decides about it.

    One expression of all of them tells whether any matches, so that thousands cost little.
    """

    def __init__(self, lines: Iterable[str], cases: Sequence[bool] = (False, True)) -> None:
        """Reads the lines of an ignore file. Comments, and lines that cannot match, are left out.

        `cases`: whether paths are compared without regard to case, with regard to it, or both. Raises ValueError if
        the lines are too long.
        """
        parsed = (parse_pattern(line, number) for number, line in enumerate(lines, 1))
        self._last_first = [pattern for pattern in parsed if pattern is not None][::-1]
        any_of_them = "|".join(pattern.expression for pattern in self._last_first) or _NOTHING
        self._any = {ignores_case: compile_expression(any_of_them, ignores_case) for ignores_case in cases}

    def find_deciding(self, path: str, ignores_case: bool) -> Pattern | None:
        """Returns the pattern that decides about a path relative to the folder of the ignore file."""
        name, any_of_them = path.encode("latin-1"), self._any.get(ignores_case)
        if any_of_them is None or any_of_them.fullmatch(name) is None:
            return None
        matching = (
            each for each in self._last_first if compile_expression(each.expression, ignores_case).fullmatch(name)
        )
        return next(matching, None)


@dataclass(frozen=True, slots=True)
class RuleList:
    """Patterns, and where they come from."""

    source: str  # what the user is told
    folder: str  # the patterns are relative to it
    patterns: Patterns


@dataclass(frozen=True, slots=True)
class Rule:
    """The pattern that excludes a path."""

    source: str
    line: int
    text: str  # in Latin-1

    def __str__(self) -> str:
        return f"`{self.source}` line {self.line}: {self.shown}"

    @property
    def shown(self) -> str:
        """The pattern as one printable word."""
        return show_pattern(self.text.encode("latin-1").decode("utf-8", "replace"))


class UnreadableRulesError(Exception):
    """An ignore file cannot be read, so nobody knows what it excludes. The message says which file and why."""


class RuleFiles:
    """Reads ignore files, and each of them again when it has changed."""

    def __init__(self) -> None:
        self._load = lru_cache(_MAX_FILES)(_load_patterns)

    def read(self, path: str, folder: str) -> RuleList:
        """Returns the patterns of a file, none if there is no such file. Raises UnreadableRulesError."""
        try:
            status = os.stat(path)
            stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            _check(path, status)
            patterns = self._load(path, stamp)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            patterns = _NO_PATTERNS
        except OSError as error:
            raise UnreadableRulesError(f"`{path}` cannot be read: {error.strerror}") from None
        return RuleList(os.path.basename(path), folder, patterns)


def _load_patterns(path: str, _stamp: tuple[int, ...]) -> Patterns:
    with open(path, encoding="latin-1", newline="") as file:
        lines = file.read().removeprefix(_BYTE_ORDER_MARK).split("\n")
    try:
        return Patterns(lines)
    except ValueError:
        raise UnreadableRulesError(f"`{path}` cannot be read: a line is too long for a pattern") from None


def _check(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableRulesError(f"`{path}` cannot be read: it is not a file")
    if status.st_size > _MAX_BYTES:
        raise UnreadableRulesError(f"`{path}` cannot be read: it has more than {_MAX_BYTES // 2**20} MiB")


_NO_PATTERNS = Patterns(())


def find_rule(path: str, top: str, find_lists: Callable[[str], Sequence[RuleList]]) -> Rule | None:
    """Returns the rule that excludes a path below the folder `top`, as Git would; None if it is not excluded.

    `find_lists` returns the lists that apply to what is in a folder. The first that has a match decides. A folder that
    is excluded is not looked into: a pattern for something in it cannot include that again. A path is also excluded if
    it would be where case does not count.
    """
    start = len(top.rstrip("/")) + 1
    ends = [index for index in range(start, len(path)) if path[index] == "/"] + [len(path)]
    names = [(path[:end] + _FOLDER * (end < len(path)), find_lists(os.path.dirname(path[:end]))) for end in ends]
    found = (_find_deciding(name, lists, ignores_case) for ignores_case in (False, True) for name, lists in names)
    return next(filter(None, found), None)


def list_folders(folder: str, top: str) -> list[str]:
    """Returns the folder and its parents up to `top`."""
    folders = [folder]
    while folders[-1] != top and folders[-1] != os.path.dirname(folders[-1]):
        folders.append(os.path.dirname(folders[-1]))
    return folders


def parse_pattern(line: str, number: int = 1) -> Pattern | None:
    """Returns the pattern of a line; None for a comment, a blank line and a pattern that can match nothing.

    Raises ValueError if it is too long.
    """
    text = line.removesuffix("\r")
    trimmed = _TRAILING_BLANKS.fullmatch(text)
    text = trimmed[1] if trimmed else text  # one that ends with a single backslash is kept, and matches nothing
    if text.startswith("#"):
        return None
    if len(text) > _MAX_CHARS:
        raise ValueError("no path is so long")
    named = text.removeprefix("!")
    bare = named.removesuffix("/")
    expression = _write_expression(bare.removeprefix("/"))
    if not expression:
        return None
    if "/" not in bare:
        expression = _FOLDERS + expression.replace(_ANYTHING, _IN_NAME)
    return Pattern(text, number, named != text, expression + (r"\x00" if bare != named else r"\x00?"))


def is_refused(text: str) -> bool:
    """True for a pattern that is not blank and no comment, and can still match nothing, such as one with half a set."""
    try:
        is_missing = parse_pattern(to_latin1(text)) is None
    except ValueError:  # it has half of a surrogate pair, or is too long
        return True
    return is_missing and bool(text.strip()) and not text.startswith("#")


def show_pattern(text: str) -> str:
    """Returns a pattern as one printable word."""
    shown = "".join(char if char.isprintable() else "?" for char in text)
    return f"`{shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 3] + '...'}`"


def to_latin1(path: str) -> str:
    """Returns the bytes of a path as Latin-1, the form that patterns are compared with."""
    return os.fsencode(path).decode("latin-1")


def _find_deciding(path: str, lists: Iterable[RuleList], ignores_case: bool) -> Rule | None:
    """Returns the rule that decides about a path, if it excludes it."""
    for rules in lists:
        match = rules.patterns.find_deciding(to_latin1(path[len(rules.folder) :].lstrip("/")), ignores_case)
        if match is not None:
            return None if match.is_negated else Rule(rules.source, match.line, match.text)
    return None


def _write_expression(glob: str) -> str | None:
    """Returns the expression for a pattern without `!` and slash around it; None if it can match nothing.

    Git compares what is before the first wildcard by itself. So `a**/b` is like `a`, then `**/b`.
    """
    wildcard = _WILDCARD.search(glob)
    at = first = len(glob) if wildcard is None else wildcard.start()
    written = _write_text(glob[:at])
    while at < len(glob):
        start, char = at, glob[at]
        at += 1
        if char == "*":
            at = len(glob) - len(glob[at:].lstrip("*"))
            is_deep = at - start > 1 and (start == first or glob[start - 1] == "/")
            stars = _find_kind(is_deep, glob[at:])
            written += stars
            at += stars is _FOLDERS
        elif char == "?":
            written += r"[^/\x00]"
        elif char == "[":
            read = _read_set(glob, at)
            if read is None:
                return None
            written, at = written + read[0], read[1]
        elif char == "\\":
            if at == len(glob):
                return None
            at += 1
            written += _write_text(glob[at - 1])
        else:
            written += _write_text(char)
    return written


def _write_text(chars: Iterable[str]) -> str:
    return "".join(f"\\x{ord(char):02x}" for char in chars)


def _find_kind(is_deep: bool, rest: str) -> str:
    """`is_deep`: there are two stars or more, at the start or after a slash. `rest`: what follows them."""
    if is_deep and rest.startswith("/"):
        return _FOLDERS
    return _ANYTHING if is_deep and rest[:2] in ("", "\\/") else _IN_NAME


def _read_set(text: str, at: int) -> tuple[str, int] | None:
    """Returns the expression of a set whose `[` is before `at`, and the place after its `]`; None if it is invalid.

    A set never contains `/`.
    """
    is_negated = text[at : at + 1] in ("!", "^")
    at += is_negated
    first = at
    chars: set[str] = set()
    while at == first or text[at : at + 1] != "]":
        item = _SET_ITEM.match(text, at)
        if item is None or (item[1] is not None and item[1] not in _NAMED_SETS):
            return None
        low, high, is_named = item[2] or item[3], item[4] or item[5] or "", _NAMED_SETS.get(item[1] or "")
        chars |= {low} if is_named is None else set(filter(is_named, _BYTES[:128]))
        chars |= {char for char in _BYTES if high and low <= char <= high}
        at = item.end()
    if is_negated:
        return rf"[^/\x00{_write_text(chars)}]", at + 1
    return f"[{_write_text(chars - {'/'})}]" if chars != {"/"} else _NOTHING, at + 1
