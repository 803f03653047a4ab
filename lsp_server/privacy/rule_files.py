"""Lists of patterns, the files that they come from, and the rule among them that excludes a path."""

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsp_server.privacy.patterns import Pattern, find_last_match, parse_patterns, to_latin1

_BYTE_ORDER_MARK = "\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class RuleList:
    """Patterns in order. The last one that matches a path decides about it."""

    source: str  # what the user is told
    folder: str  # the patterns are relative to it
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """The pattern that excludes a path."""

    source: str
    pattern: Pattern


class UnreadableRulesError(Exception):
    """An ignore file cannot be read, so nobody knows what it excludes. The message says which file and why."""


class RuleFiles:
    """Reads ignore files, and each of them again when it has changed."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[tuple[int, ...], tuple[Pattern, ...]]] = {}  # path -> its stamp, its patterns

    def read(self, path: str, folder: str) -> RuleList:
        """Returns the patterns of a file, none if there is no such file. Raises UnreadableRulesError."""
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                return RuleList(os.path.basename(path), folder, ())
            stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if self._read.get(path, ((),))[0] != stamp:
                self._read[path] = (stamp, _parse_file(path))
        except (FileNotFoundError, NotADirectoryError):
            return RuleList(os.path.basename(path), folder, ())
        except OSError as error:
            raise UnreadableRulesError(f"`{path}` cannot be read: {error.strerror}") from None
        return RuleList(os.path.basename(path), folder, self._read[path][1])


def find_rule(path: str, top: str, find_lists: Callable[[str], Sequence[RuleList]]) -> Rule | None:
    """Returns the rule that excludes a path below the folder `top`, as Git would; None if it is not excluded.

    `find_lists` returns the lists that apply to what is in a folder. The first that has a match decides. A folder that
    is excluded is not looked into: a pattern for something in it cannot include that again.
    """
    for end in _iter_ends(path, top):
        here = path[:end]
        is_folder = end < len(path)
        for rules in find_lists(os.path.dirname(here)):
            relative = to_latin1(here[len(rules.folder) :].lstrip("/"))
            match = find_last_match(rules.patterns, relative, is_folder)
            if match is not None:
                if not match.is_negated:
                    return Rule(rules.source, match)
                break
    return None


def list_folders(folder: str, top: str) -> list[str]:
    """Returns the folder and its parents up to `top`."""
    folders = [folder]
    while folders[-1] != top and folders[-1] != os.path.dirname(folders[-1]):
        folders.append(os.path.dirname(folders[-1]))
    return folders


def _iter_ends(path: str, top: str) -> list[int]:
    """Returns where the names below `top` end in `path`: of the folders, then of the file."""
    start = len(top.rstrip("/")) + 1
    return [index for index in range(start, len(path)) if path[index] == "/"] + [len(path)]


def _parse_file(path: str) -> tuple[Pattern, ...]:
    with open(path, encoding="latin-1", newline="") as file:
        return parse_patterns(file.read().removeprefix(_BYTE_ORDER_MARK).split("\n"))
