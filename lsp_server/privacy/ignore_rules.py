"""Patterns in the syntax of .gitignore, and the files that have them.

pathspec knows the syntax. It judges a path as a whole, though: by `/private/` and then `!*.md` it would include a file
in that folder. So it only says what a pattern matches, and the patterns are applied as Git applies them, from the
outermost folder on: nothing in an excluded folder is included again. Its expressions are matched by RE2, whose time
grows with the length of the path alone.
"""

import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

_MAX_BYTES = 10 * 2**20  # of an ignore file
_MAX_FILES = 1000  # that are kept
_MAX_SHOWN = 60  # characters of a pattern
_NOTHING = r"[^\s\S]"


class UnreadableRulesError(Exception):
    """Rules cannot be read, so nobody knows what they exclude. The message says which and why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A line with a pattern."""

    line: int  # from 1
    text: str
    excludes: bool
    expression: Any  # of RE2, which has no types

    def matches(self, path: str, is_folder: bool) -> bool:
        """True if the pattern matches a path itself, not only a folder that it is in."""
        if self.text.rstrip().endswith("/"):
            if not is_folder:
                return False
            path += "/"
        found = self.expression.finditer(path)
        return any(match.groupdict().get("ps_d") is None or match.end() == len(path) for match in found)


class IgnoreRules:
    """The rules of one source. Of those that match a path, the last one decides about it.

    A path is also excluded if it would be where case does not count, since a disk may show it under both names.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        """Raises UnreadableRulesError for a pattern that has no expression, such as `[[:alpha:]]`."""
        self.useless = [line for line in lines if line.strip() and line[0] != "#" and _parse(line) is None]
        self._exact, self._lower = (_RuleList(lines, spell) for spell in (str, str.lower))

    def find(self, path: str) -> Rule | None:
        """Returns the rule that excludes a path, which is relative to the folder of the rules."""
        path = os.fsencode(path).decode("utf-8", "replace")
        return self._exact.find(path) or self._lower.find(path.lower())


class _RuleList:
    def __init__(self, lines: Sequence[str], spell: Callable[[str], str]) -> None:
        parsed = ((number, line, _parse(spell(line))) for number, line in enumerate(lines, 1))
        known = [(number, line, pattern) for number, line, pattern in parsed if pattern is not None]
        expressions = [pattern.regex.pattern for _, _, pattern in known]
        self._last_first = [
            Rule(number, line, bool(pattern.include), _compile(pattern.regex.pattern))
            for number, line, pattern in reversed(known)
        ]
        # Tells whether any matches, so that thousands cost little.
        self._any = _compile("|".join(expressions).replace("?P<ps_d>", "?:") or _NOTHING)

    def find(self, path: str) -> Rule | None:
        if self._any.search(path + "/") is None:
            return None
        for end in [*(match.start() for match in re.finditer("/", path)), len(path)]:
            deciding = next((each for each in self._last_first if each.matches(path[:end], end < len(path))), None)
            if deciding is not None and deciding.excludes:
                return deciding
        return None


def _parse(line: str) -> Any:
    """Returns the pattern of a line; None for a comment, a blank line and a pattern that can match nothing."""
    text = re.sub(r"/\*\*/$", "/**/*/", line.removesuffix("\r"))  # pathspec forgets that the former is for folders
    if "[[:" in text:
        raise UnreadableRulesError(f"{show(line)} has a named set, which is not supported")
    try:
        pattern = GitIgnoreSpecPattern(text)
    except GitIgnorePatternError:
        return None
    except re.error as error:
        raise UnreadableRulesError(f"{show(line)} is no pattern: {error}") from None
    return None if pattern.regex is None else pattern


@lru_cache(4096)
def _compile(expression: str) -> Any:
    options = re2.Options()
    options.dot_nl, options.log_errors, options.max_mem = True, False, 2**26  # a list may have thousands of patterns
    try:
        return re2.compile(expression, options)
    except re2.error:
        raise UnreadableRulesError("its patterns are too long") from None


class RuleFiles:
    """Reads ignore files, and each of them again when it has changed."""

    def __init__(self) -> None:
        self._load = lru_cache(_MAX_FILES)(_load)

    def read(self, path: str) -> IgnoreRules | None:
        """Returns the rules of a file; None if there is no such file. Raises UnreadableRulesError."""
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                return None
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableRulesError("it is not a file")
            if status.st_size > _MAX_BYTES:
                raise UnreadableRulesError(f"it has more than {_MAX_BYTES // 2**20} MiB")
            return self._load(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnreadableRulesError(f"`{path}` cannot be read: {error.strerror}") from None
        except UnreadableRulesError as error:
            raise UnreadableRulesError(f"`{path}` cannot be read: {error}") from None


def _load(path: str, _stamp: tuple[int, ...]) -> IgnoreRules:
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        return IgnoreRules(file.read().split("\n"))


def show(pattern: str) -> str:
    """Returns a pattern as one printable word."""
    shown = "".join(char if char.isprintable() else "?" for char in pattern)
    return f"`{shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 3] + '...'}`"
