"""The policy on documents: which of them are excluded, and by what rule. Nothing of an excluded one is sent."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lsp_server.privacy.credentials import build_credential_rules
from lsp_server.privacy.git_rules import GitRules
from lsp_server.privacy.paths import LinkLoopError, iter_spellings, read_uri
from lsp_server.privacy.patterns import is_refused, parse_patterns, to_latin1
from lsp_server.privacy.rule_files import Rule, RuleFiles, RuleList, UnreadableRulesError, find_rule, list_folders

IGNORE_FILE = ".midtokenignore"

_CHECK_INTERVAL_S = 1.0  # an edit of an ignore file counts after this time at the latest
_MAX_JUDGED = 1000
_MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class _Judgement:
    reason: str | None
    judged_at_s: float


class Policy:
    """Says why a document is excluded.

    Five sources have rules: the names of credential files, the setting `exclude`, the files .midtokenignore in the
    document's folder and all its parents, and Git's rules. Each can only exclude: none of them includes what another
    one excludes. All paths of the document count, as it was opened and with symbolic links followed.
    """

    def __init__(self, environment: Mapping[str, str], now_s: Callable[[], float] = time.monotonic) -> None:
        """`environment`: that of the process, for Git's configuration."""
        self._now_s = now_s
        self._files = RuleFiles()
        self._git = GitRules(self._files, environment)
        self._patterns: tuple[str, ...] = ()
        self._folders: tuple[str, ...] = ()
        self._refused: str | None = None  # the first pattern of the setting that is none
        self._setting: tuple[RuleList, ...] = ()
        self._judged: dict[str, _Judgement] = {}  # by URI
        self._judged_names: dict[str, str | None] = {}  # by path

    @cached_property
    def _credentials(self) -> RuleList:  # built when it is first needed, since the editor waits while this is made
        return build_credential_rules()

    def configure(self, patterns: Sequence[str], folder_uris: Sequence[str] = ()) -> None:
        """Sets the setting `exclude` and the workspace's folders.

        A pattern is compared with the whole path and, in a workspace folder, with the path from that folder on. While
        one of them can match nothing, all documents are excluded.
        """
        folders = tuple(path for uri in folder_uris for path in read_uri(uri).paths[:1])
        if (tuple(patterns), folders) == (self._patterns, self._folders):
            return
        self._patterns, self._folders = tuple(patterns), folders
        self._refused = next(filter(is_refused, patterns), None)
        parsed = () if self._refused is not None else parse_patterns(map(to_latin1, patterns))
        roots = dict.fromkeys(["/", *(os.path.normpath(folder) for folder in folders), *map(os.path.realpath, folders)])
        self._setting = tuple(RuleList("setting exclude", root, parsed) for root in roots)
        self._forget()

    def find_exclusion(self, uri: str) -> str | None:
        """Returns why the document is excluded, in one phrase that names the rule; None if it is not.

        Costs a microsecond, and once a second what it takes to look at the ignore files again.
        """
        now_s = self._now_s()
        judged = self._judged.get(uri)
        if judged is None or now_s - judged.judged_at_s >= _CHECK_INTERVAL_S:
            if len(self._judged) >= _MAX_JUDGED:
                self._forget()
            judged = self._judged[uri] = _Judgement(self._judge(uri), now_s)
        return judged.reason

    def _judge(self, uri: str) -> str | None:
        if self._refused is not None:
            return f"setting exclude: {_show(self._refused)} is a pattern that can match nothing, so please correct it"
        place = read_uri(uri)
        if any("\0" in path for path in place.paths):
            return "its path has a NUL byte, and no file has such a path"
        if place.elsewhere is not None:
            reasons = map(self._judge_name, place.paths)
            unread = f"it is on {place.elsewhere}, where its ignore files cannot be read"
            return next(filter(None, reasons), unread)
        judges = [self._judge_path if path.startswith("/") else self._judge_name for path in place.paths]
        return next(filter(None, (judge(path) for judge, path in zip(judges, place.paths, strict=True))), None)

    def _judge_path(self, path: str) -> str | None:
        try:
            for spelling in iter_spellings(path):
                reason = self._judge_name(spelling) or self._judge_by_files(spelling)
                if reason is not None:
                    return reason
        except UnreadableRulesError as error:
            return str(error)
        except LinkLoopError:
            return "its path is a loop of symbolic links"
        except OSError as error:
            return f"its path cannot be followed: {error.strerror}"
        return None

    def _judge_name(self, path: str) -> str | None:
        """Judges a path by itself, once. It need not be one of this machine."""
        if path not in self._judged_names:
            self._judged_names[path] = self._find_name_reason(path)
        return self._judged_names[path]

    def _find_name_reason(self, path: str) -> str | None:
        path = "/" + path.lstrip("/")
        rule = find_rule(path.lower(), "/", lambda _: [self._credentials])
        if rule is not None:
            return f"it looks like a credentials file (`{rule.pattern.text}`)"
        rule = next(filter(None, (_find_own_rule(path, rules) for rules in self._setting)), None)
        return None if rule is None else f"setting exclude: {_show_rule(rule)}"

    def _judge_by_files(self, path: str) -> str | None:
        rule = find_rule(path, "/", self._find_own_lists)
        if rule is not None:
            return f"`{rule.source}` line {rule.pattern.line}: {_show_rule(rule)}"
        rule = self._git.find_rule(path)
        if rule is not None:
            return f"git ignores it (`{rule.source}` line {rule.pattern.line}: {_show_rule(rule)})"
        return None

    def _forget(self) -> None:
        self._judged.clear()
        self._judged_names.clear()

    def _find_own_lists(self, folder: str) -> list[RuleList]:
        return [self._files.read(os.path.join(each, IGNORE_FILE), each) for each in list_folders(folder, "/")]


def _find_own_rule(path: str, rules: RuleList) -> Rule | None:
    """Returns the rule in one list that excludes a path, if it is below the list's folder."""
    is_below = path.startswith(rules.folder.rstrip("/") + "/")
    return find_rule(path, rules.folder, lambda _: [rules]) if is_below else None


def _show_rule(rule: Rule) -> str:
    return _show(rule.pattern.text.encode("latin-1").decode("utf-8", "replace"))


def _show(text: str) -> str:
    """Returns a pattern as one printable word."""
    shown = "".join(char if char.isprintable() else "?" for char in text)
    return f"`{shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 3] + '...'}`"
