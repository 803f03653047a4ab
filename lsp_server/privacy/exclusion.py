"""The policy on documents: which of them are excluded, and by what rule. Nothing of an excluded one is sent."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from lsp_server.privacy.credentials import build_credential_rules
from lsp_server.privacy.git_rules import GitRules
from lsp_server.privacy.paths import LinkLoopError, iter_spellings, read_uri
from lsp_server.privacy.patterns import (
    Rule,
    RuleFiles,
    RuleList,
    UnreadableRulesError,
    find_rule,
    is_refused,
    list_folders,
    parse_patterns,
    show_pattern,
    to_latin1,
)

IGNORE_FILE = ".midtokenignore"

_MAX_NAMES = 1000  # that are remembered


class Policy:
    """Says why a document is excluded.

    Five sources have rules: the names of credential files, the setting `exclude`, the files .midtokenignore in the
    document's folder and all its parents, and Git's rules. Each can only exclude: none of them includes what another
    one excludes. All paths of the document count, as it was opened and with symbolic links followed.

    It looks at files and runs Git, so it may take as long as they do. `Guard` calls it in a thread.
    """

    def __init__(self, environment: Mapping[str, str], now_s: Callable[[], float] = time.monotonic) -> None:
        """`environment`: that of the process, for Git."""
        self._files = RuleFiles()
        self._git = GitRules(self._files, environment, now_s)
        self._names = _NameRules((), ())

    def configure(self, patterns: Sequence[str], folder_uris: Sequence[str] = ()) -> None:
        """Sets the setting `exclude` and the workspace's folders.

        A pattern is compared with the whole path and, in a workspace folder, with the path from that folder on. While
        one of them can match nothing, all documents are excluded.
        """
        self._names = _NameRules(patterns, [path for uri in folder_uris for path in read_uri(uri).paths[:1]])

    def find_exclusion(self, uri: str) -> str | None:
        """Returns why a document is excluded, in one phrase that names the rule; None if it is not."""
        return self.find_exclusions([uri])[uri]

    def find_exclusions(self, uris: Iterable[str]) -> dict[str, str | None]:
        """Returns for each document why it is excluded, or None. Git is asked about all of them at once."""
        by_uri = {uri: self._find_reason_or_paths(uri) for uri in uris}
        ignored = self._git.find_reasons(path for each in by_uri.values() if not isinstance(each, str) for path in each)
        return {
            uri: found if isinstance(found, str) else next((ignored[path] for path in found if path in ignored), None)
            for uri, found in by_uri.items()
        }

    def close(self) -> None:
        """Ends what runs. May be called in another thread."""
        self._git.close()

    def _find_reason_or_paths(self, uri: str) -> str | list[str]:
        """Returns why a document is excluded, or the paths that Git must be asked about."""
        place, names = read_uri(uri), self._names
        if names.refused is not None:
            shown = show_pattern(names.refused)
            return f"setting exclude: {shown} is a pattern that can match nothing, so please correct it"
        if any("\0" in path for path in place.paths):
            return "its path has a NUL byte, and no file has such a path"
        reason = next(filter(None, map(names.find_reason, place.paths)), None)
        if reason is not None:
            return reason
        if place.elsewhere is not None:
            return f"it is on {place.elsewhere}, where its ignore files cannot be read"
        try:
            spellings = [each for path in place.paths if path.startswith("/") for each in iter_spellings(path)]
            return next(filter(None, map(self._find_own_reason, spellings)), spellings)
        except UnreadableRulesError as error:
            return str(error)
        except LinkLoopError:
            return "its path is a loop of symbolic links"
        except OSError as error:
            return f"its path cannot be followed: {error.strerror}"

    def _find_own_reason(self, path: str) -> str | None:
        rule = find_rule(path, "/", self._find_own_lists)
        return self._names.find_reason(path) if rule is None else str(rule)

    def _find_own_lists(self, folder: str) -> list[RuleList]:
        return [self._files.read(os.path.join(each, IGNORE_FILE), each) for each in list_folders(folder, "/")]


class _NameRules:
    """The rules that need no look at files: names of credential files, and the setting `exclude`."""

    def __init__(self, patterns: Sequence[str], folders: Sequence[str]) -> None:
        self.refused = next(filter(is_refused, patterns), None)  # the first pattern that is none
        self.find_reason = lru_cache(_MAX_NAMES)(self._find_reason)
        parsed = () if self.refused is not None else parse_patterns(map(to_latin1, patterns))
        roots = dict.fromkeys(["/", *(os.path.normpath(folder) for folder in folders), *map(os.path.realpath, folders)])
        self._setting = [RuleList("setting exclude", root, parsed) for root in roots]

    def _find_reason(self, path: str) -> str | None:
        """Judges a path by itself. It need not be one of this machine."""
        path = "/" + path.lstrip("/")
        rule = find_rule(path.lower(), "/", lambda _: [build_credential_rules()])
        if rule is not None:
            return f"it looks like a credentials file (`{rule.text}`)"
        rule = next(filter(None, (_find_below(path, rules) for rules in self._setting)), None)
        return None if rule is None else f"setting exclude: {rule.shown}"


def _find_below(path: str, rules: RuleList) -> Rule | None:
    """Returns the rule in one list that excludes a path, if it is below the list's folder."""
    is_below = path.startswith(rules.folder.rstrip("/") + "/")
    return find_rule(path, rules.folder, lambda _: [rules]) if is_below else None
