"""Ignore files and lists of patterns in the syntax of .gitignore, and the rule among them that excludes a path.

They are for `.midtokenignore`, the setting `exclude` and names of credentials, and for `.gitignore` where Git cannot be
asked. The library pathspec 1.1 differs from Git for a quarter of random patterns, such as `[[:alpha:]]`,
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
from operator import attrgetter
from typing import Any

import re2

_MAX_SHOWN = 60  # characters of a pattern
_MAX_BYTES = 10 * 2**20  # of an ignore file
_MAX_CHARS = 10_000  # of a pattern
_MAX_COMPILED = 4096  # expressions that are kept, of all lists
_MAX_FOUND = 1000  # paths for which a list remembers what decides
_BYTE_ORDER_MARK = "\xef\xbb\xbf"
_TRAILING_BLANKS = re.compile(r"((?:\\.|[^\\])*?) *", re.DOTALL)
_WILDCARD = re.compile(r"[*?\[\\]")
_SET_ITEM = re.compile(r"\[:([^\]]*):\]|(?:\\(.)|([^\\]))(?:-(?:\\(.)|([^\]\\])))?", re.DOTALL)
_BYTES = [chr(code) for code in range(256)]
_SMALL_LETTERS = {ord(char): char.lower() for char in _BYTES[:128]}
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
_IN_NAME = "[^/]*"  # `*`: any characters but slashes
_FOLDERS = "(?:.*/)?"  # `**/`: nothing, or the names of some folders and the slash after them
_ANYTHING = ".*"  # `**` at the end
_NO_SLASH = frozenset(_BYTES) - {"/"}
_BYTEWISE = re2.Options()
_BYTEWISE.encoding, _BYTEWISE.dot_nl = re2.Options.Encoding.LATIN1, True


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of an ignore file."""

    text: str
    line: int  # from 1
    is_negated: bool
    needs_folder: bool
    is_anchored: bool  # it is compared with the whole path, otherwise with its last name
    end: str  # the character that it ends with; empty if that is not known
    expression: bytes  # of RE2

    def matches(self, path: str, is_folder: bool) -> bool:
        """Compares it with a path relative to the folder of the ignore file, without a slash at either end."""
        if self.needs_folder and not is_folder:
            return False
        name = path if self.is_anchored else path.rpartition("/")[2]
        return _compile(self.expression).fullmatch(name.encode("latin-1")) is not None


class Patterns:
    """Patterns in order. The last one that matches a path decides about it.

    They are found by how they end, and what was found is remembered, so that thousands cost little.
    """

    def __init__(self, lines: Iterable[str], ignores_case: bool = False) -> None:
        """Reads the lines of an ignore file. Comments, and lines that cannot match, are left out.

        `ignores_case`: as Git with `core.ignorecase`.
        """
        self._ignores_case = ignores_case
        numbered = (parse_pattern(line, number, ignores_case) for number, line in enumerate(lines, 1))
        self._by_end: dict[str, list[Pattern]] = {}
        for pattern in filter(None, numbered):
            self._by_end.setdefault(pattern.end, []).append(pattern)
        self.find_deciding = lru_cache(_MAX_FOUND)(self._find_deciding)

    def _find_deciding(self, path: str, is_folder: bool) -> Pattern | None:
        """Returns the pattern that decides about a path relative to the folder of the ignore file."""
        path = _to_lower(path) if self._ignores_case else path
        kinds = (self._by_end.get(end, ()) for end in ("", path[-1:]))
        last_of_each = (
            next((each for each in reversed(kind) if each.matches(path, is_folder)), None) for kind in kinds
        )
        return max(filter(None, last_of_each), key=attrgetter("line"), default=None)


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
        # By path and whether case is ignored: its stamp, its patterns.
        self._read: dict[tuple[str, bool], tuple[tuple[int, ...], Patterns]] = {}

    def read(self, path: str, folder: str, ignores_case: bool = False) -> RuleList:
        """Returns the patterns of a file, none if there is no such file. Raises UnreadableRulesError."""
        try:
            patterns = self._read_file(path, ignores_case)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            patterns = _NO_PATTERNS
        except OSError as error:
            raise UnreadableRulesError(f"`{path}` cannot be read: {error.strerror}") from None
        return RuleList(os.path.basename(path), folder, patterns)

    def _read_file(self, path: str, ignores_case: bool) -> Patterns:
        status = os.stat(path)
        _check(path, status)
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known = self._read.get((path, ignores_case))
        if known is None or known[0] != stamp:
            lines = _read_text(path).removeprefix(_BYTE_ORDER_MARK).split("\n")
            try:
                known = self._read[path, ignores_case] = (stamp, Patterns(lines, ignores_case))
            except ValueError:
                raise UnreadableRulesError(f"`{path}` cannot be read: a line is too long for a pattern") from None
        return known[1]


def _read_text(path: str) -> str:
    """What was a file a moment ago may be a pipe now, and to open that or to read it may take for ever."""
    with open(
        path,
        encoding="latin-1",
        newline="",
        opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)),  # Windows has no such pipes
    ) as file:
        _check(path, os.fstat(file.fileno()))
        return file.read()


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
    is excluded is not looked into: a pattern for something in it cannot include that again.
    """
    for end in _list_ends(path, top):
        here = path[:end]
        rule = _find_deciding(here, end < len(path), find_lists(os.path.dirname(here)))
        if rule is not None:
            return rule
    return None


def list_folders(folder: str, top: str) -> list[str]:
    """Returns the folder and its parents up to `top`."""
    folders = [folder]
    while folders[-1] != top and folders[-1] != os.path.dirname(folders[-1]):
        folders.append(os.path.dirname(folders[-1]))
    return folders


def parse_pattern(line: str, number: int = 1, ignores_case: bool = False) -> Pattern | None:
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
    expression = _write_expression(bare.removeprefix("/"), ignores_case)
    if not expression:
        return None
    end = "" if bare[-1] in "*?]" else _to_lower(bare[-1]) if ignores_case else bare[-1]
    return Pattern(text, number, named != text, bare != named, "/" in bare, end, expression.encode())


@lru_cache(_MAX_COMPILED)
def _compile(expression: bytes) -> Any:  # RE2's expressions have no types
    return re2.compile(expression, _BYTEWISE)


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


def _find_deciding(path: str, is_folder: bool, lists: Iterable[RuleList]) -> Rule | None:
    """Returns the rule that decides about a path, if it excludes it."""
    for rules in lists:
        relative = to_latin1(path[len(rules.folder) :].lstrip("/"))
        match = rules.patterns.find_deciding(relative, is_folder)
        if match is not None:
            return None if match.is_negated else Rule(rules.source, match.line, match.text)
    return None


def _to_lower(text: str) -> str:
    """Only ASCII letters, as in Git."""
    return text.translate(_SMALL_LETTERS)


def _list_ends(path: str, top: str) -> list[int]:
    """Returns where the names below `top` end in `path`: of the folders, then of the file."""
    start = len(top.rstrip("/")) + 1
    return [index for index in range(start, len(path)) if path[index] == "/"] + [len(path)]


def _write_expression(glob: str, ignores_case: bool) -> str | None:
    """Returns the expression for a pattern without `!` and slash around it; None if it can match nothing.

    Git compares what is before the first wildcard by itself. So `a**/b` is like `a`, then `**/b`.
    """
    wildcard = _WILDCARD.search(glob)
    at = first = len(glob) if wildcard is None else wildcard.start()
    to_text = _to_lower if ignores_case else str
    written = _write_text(to_text(glob[:at]))
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
            written += "[^/]"
        elif char == "[":
            read = _read_set(glob, at, ignores_case)
            if read is None:
                return None
            chars, at = read
            written += f"[{_write_text(chars)}]" if chars else r"[^\x00-\xff]"
        elif char == "\\":
            if at == len(glob):
                return None
            at += 1
            written += _write_text(glob[at - 1])  # its case counts, as in Git
        else:
            written += _write_text(to_text(char))
    return written


def _write_text(chars: Iterable[str]) -> str:
    return "".join(f"\\x{ord(char):02x}" for char in chars)


def _find_kind(is_deep: bool, rest: str) -> str:
    """`is_deep`: there are two stars or more, at the start or after a slash. `rest`: what follows them."""
    if is_deep and rest.startswith("/"):
        return _FOLDERS
    return _ANYTHING if is_deep and rest[:2] in ("", "\\/") else _IN_NAME


def _read_set(text: str, at: int, ignores_case: bool) -> tuple[frozenset[str], int] | None:
    """Returns the characters of a set whose `[` is before `at`, and the place after its `]`; None if it is invalid.

    A set never contains `/`. Where case is ignored, ranges and names have small letters for large ones, but single
    characters do not.
    """
    is_negated = text[at : at + 1] in ("!", "^")
    at += is_negated
    first = at
    chars: set[str] = set()
    while at == first or text[at : at + 1] != "]":
        item = _SET_ITEM.match(text, at)
        if item is None:
            return None
        name, low, high = item[1], item[2] or item[3], item[4] or item[5]
        if name is not None and name not in _NAMED_SETS:
            return None
        if name is not None:
            found = {char for char in _BYTES[:128] if _NAMED_SETS[name](char)}
        else:
            found = {char for char in _BYTES if low <= char <= (high or low)} | {low}
        is_many = name is not None or high is not None
        chars |= found | ({char.lower() for char in found if char.isascii()} if ignores_case and is_many else set())
        at = item.end()
    return (_NO_SLASH - chars if is_negated else _NO_SLASH & chars), at + 1
