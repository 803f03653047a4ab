"""The rules of the Git repository that a path is in: .gitignore files, info/exclude, and the user's own file.

A file that Git tracks is judged by the same rules. Git itself does not ignore such a file, but only the index says
which files are tracked, and a rule that names a file is a reason to keep its text here in any case.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lsp_server.privacy.rule_files import Rule, RuleFiles, RuleList, UnreadableRulesError, find_rule, list_folders

_GIT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Repository:
    top: str
    common_dir: str  # the `.git` folder, of the main worktree if there are several


class GitRules:
    """Finds the rule by which Git ignores a path."""

    def __init__(self, files: RuleFiles, environment: Mapping[str, str]) -> None:
        """`environment`: that of the process, for `git config` and the user's folders."""
        self._files = files
        self._environment = dict(environment)
        self._user_files: dict[str, tuple[tuple[int | None, ...], str | None]] = {}  # repository -> stamps, file

    def find_rule(self, path: str) -> Rule | None:
        """Returns the rule that makes Git ignore an absolute path. Raises UnreadableRulesError."""
        repository = _find_repository(path)
        if repository is None:
            return None
        others = [self._files.read(os.path.join(repository.common_dir, "info", "exclude"), repository.top)]
        user_file = self._find_user_file(repository)
        if user_file is not None:
            others.append(self._files.read(user_file, repository.top))

        def find_lists(folder: str) -> Sequence[RuleList]:
            folders = list_folders(folder, repository.top)
            return [*(self._files.read(os.path.join(each, ".gitignore"), each) for each in folders), *others]

        return find_rule(path, repository.top, find_lists)

    def _find_user_file(self, repository: _Repository) -> str | None:
        """Returns the file that `core.excludesFile` names. Git is asked again when a configuration file has changed."""
        home = self._environment.get("HOME", "")
        user_dir = self._environment.get("XDG_CONFIG_HOME") or (home and os.path.join(home, ".config"))
        configurations = [os.path.join(repository.common_dir, "config"), os.path.join(user_dir, "git", "config")]
        stamps = tuple(map(_stamp, [*configurations, os.path.join(home, ".gitconfig"), "/etc/gitconfig"]))
        if self._user_files.get(repository.top, ((),))[0] != stamps:
            named = self._ask_git(repository)
            default = os.path.join(user_dir, "git", "ignore") if user_dir else None
            self._user_files[repository.top] = (stamps, named or default)
        return self._user_files[repository.top][1]

    def _ask_git(self, repository: _Repository) -> str | None:
        """Returns the value of `core.excludesFile`, None if it has none or Git is not installed."""
        command = ["git", "-C", repository.top, "config", "--path", "--get", "core.excludesFile"]
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_GIT_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError:
            return None
        except (OSError, subprocess.TimeoutExpired):
            raise UnreadableRulesError("`git config` does not say which file has your own ignore rules") from None
        if done.returncode == 1:  # it has no value
            return None
        if done.returncode != 0:
            raise UnreadableRulesError("`git config` fails here, so your own ignore rules are not known")
        value = os.fsdecode(done.stdout.removesuffix(b"\n"))
        return os.path.join(repository.top, value) if value else None


def _find_repository(path: str) -> _Repository | None:
    for folder in list_folders(os.path.dirname(path), "/"):
        common_dir = _find_common_dir(os.path.join(folder, ".git"))
        if common_dir is not None:
            return _Repository(folder, common_dir)
    return None


def _find_common_dir(entry: str) -> str | None:
    """Returns the folder behind `.git`, which is a file in submodules and worktrees; None if it is no repository."""
    git_dir = entry
    if os.path.isfile(entry):
        named = _read_line(entry)
        if not named.startswith("gitdir: "):
            return None
        git_dir = os.path.join(os.path.dirname(entry), named.removeprefix("gitdir: "))
    if not os.path.lexists(os.path.join(git_dir, "HEAD")):
        return None
    common = os.path.join(git_dir, "commondir")
    return os.path.join(git_dir, _read_line(common)) if os.path.isfile(common) else git_dir


def _read_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.readline().rstrip("\n")
    except OSError as error:
        raise UnreadableRulesError(f"`{path}` cannot be read: {error.strerror}") from None


def _stamp(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None
