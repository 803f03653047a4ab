"""The policy on documents: which of them are excluded, and by what rule. Nothing of an excluded one is sent."""

import posixpath
from collections.abc import Mapping, Sequence
from functools import lru_cache

from lsp_server.languages import list_endings
from lsp_server.privacy.credentials import find_credential_rule
from lsp_server.privacy.git_rules import GitRules
from lsp_server.privacy.paths import Disk, find_real_path, iter_spellings, read_uri
from lsp_server.privacy.patterns import (
    Patterns,
    Rule,
    RuleFiles,
    RuleList,
    UnreadableRulesError,
    find_rule,
    is_refused,
    list_folders,
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

    It looks at files and runs Git, so it may take as long as they do. `ExclusionCache` calls it in a thread.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: that of the process, for Git."""
        self._files = RuleFiles()
        self._git = GitRules(environment)
        self._read_names = lru_cache(2)(_NameRules)

    def find_exclusion(self, uri: str, exclude: Sequence[str] = (), folder_uris: Sequence[str] = ()) -> str | None:
        """Returns why a document is excluded, in one phrase that names the rule; None if it is not."""
        return self.find_exclusions({uri: ""}, exclude, folder_uris)[uri]

    def find_exclusions(
        self, languages: Mapping[str, str], exclude: Sequence[str] = (), folder_uris: Sequence[str] = ()
    ) -> dict[str, str | None]:
        """Returns for each document why it is excluded, or None. Git is asked about all of them at once.

        `languages`: those of the documents, by URI. `exclude`: the patterns of that setting. A pattern is compared with
        the whole path and, in a workspace folder, with the path from that folder on. While one of them can match
        nothing, all documents are excluded. May be called in several threads.
        """
        names, disk = self._read_names(tuple(exclude), tuple(folder_uris)), Disk(self._files)
        by_uri = {uri: _find_reason_or_paths(uri, language, names, disk) for uri, language in languages.items()}
        paths = [path for each in by_uri.values() if not isinstance(each, str) for path in each]
        ignored = self._git.find_reasons(paths, disk)
        return {
            uri: found if isinstance(found, str) else next((ignored[path] for path in found if path in ignored), None)
            for uri, found in by_uri.items()
        }


def _find_reason_or_paths(uri: str, language_id: str, names: "_NameRules", disk: Disk) -> str | list[str]:
    """Returns why a document is excluded, or the paths that Git must be asked about."""
    place = read_uri(uri)
    has_ending = any("." in posixpath.basename(path) for path in place.paths)
    is_stored = place.is_file and (has_ending or uri.lower().startswith("file:"))  # not so untitled:///Untitled-1
    paths = place.paths if is_stored else names.list_possible_paths(place.paths, language_id)
    if names.refused is not None:
        shown = show_pattern(names.refused)
        return f"setting exclude: {shown} is a pattern that can match nothing, so please correct it"
    if any("\0" in path for path in paths):
        return "its path has a NUL byte, and no file has such a path"
    reason = next(filter(None, map(names.find_reason, paths)), None)
    if reason is not None:
        return reason
    if place.elsewhere is not None:
        return f"it is on {place.elsewhere}, where its ignore files cannot be read"
    try:
        spellings = [each for path in paths if path.startswith("/") for each in iter_spellings(path, disk)]
        return next(filter(None, (_find_own_reason(each, names, disk) for each in spellings)), spellings)
    except UnreadableRulesError as error:
        return str(error)
    except OSError as error:
        return f"its path cannot be followed: {error.strerror}"


def _find_own_reason(path: str, names: "_NameRules", disk: Disk) -> str | None:
    def find_lists(folder: str) -> list[RuleList]:
        folders = list_folders(folder, "/")
        return [disk.read_rules(posixpath.join(each, IGNORE_FILE), each) for each in folders]

    rule = find_rule(path, "/", find_lists)
    return str(rule) if rule is not None else names.find_reason(path)


class _NameRules:
    """The rules that need no look at files: names of credential files, and the setting `exclude`."""

    def __init__(self, patterns: Sequence[str], folder_uris: Sequence[str]) -> None:
        self.folders = [posixpath.normpath(path) for uri in folder_uris for path in read_uri(uri).paths[:1]]
        self.refused = next(filter(is_refused, patterns), None)  # the first pattern that is none
        self.find_reason = lru_cache(_MAX_NAMES)(self._find_reason)
        lines = [] if self.refused is not None else [to_latin1(pattern) for pattern in patterns]
        roots = dict.fromkeys(["/", *self.folders, *map(find_real_path, self.folders)])
        rules = Patterns(lines)
        self._setting = [RuleList("setting exclude", root, rules) for root in roots]

    def list_possible_paths(self, names: Sequence[str], language_id: str) -> list[str]:
        """Returns where a document without a file may be stored: at the top of the workspace, under its language."""
        spelled = [name + ending for name in names or ["untitled"] for ending in ("", *list_endings(language_id))]
        return [*spelled, *(posixpath.join(folder, name.lstrip("/")) for folder in self.folders for name in spelled)]

    def _find_reason(self, path: str) -> str | None:
        """Judges a path by itself. It need not be one of this machine."""
        path = "/" + path.lstrip("/")
        rule = find_credential_rule(path.lower())
        if rule is not None:
            return f"it looks like a credentials file (`{rule.text}`)"
        rule = next(filter(None, (_find_below(path, rules) for rules in self._setting)), None)
        return None if rule is None else f"setting exclude: {rule.shown}"


def _find_below(path: str, rules: RuleList) -> Rule | None:
    """Returns the rule in one list that excludes a path, if it is below the list's folder."""
    is_below = path.startswith(rules.folder.rstrip("/") + "/")
    return find_rule(path, rules.folder, lambda _: [rules]) if is_below else None
