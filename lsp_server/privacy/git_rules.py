"""Whether Git ignores a path, which `git check-ignore` says.

Git is asked anew each time, for all paths of a repository at once: a process that lives on would go on with the rules
that it has read. It takes some 2 ms. A file that Git tracks is asked about by its rules only, since a rule that names a
file is a reason to keep its text here in any case.

The repository may be anybody's, so nothing that its configuration names is run: `check-ignore --no-index` starts no
program and does not read the index, and the file system monitor is switched off all the same. So a repository of
another user needs no entry in `safe.directory`, and none is looked for, since `--git-dir` names the repository. The
files are those beside its `.git`, also where `core.worktree` names a folder that was moved, or `core.bare` is set.

Git knows nothing of what is behind a symbolic link. There, and where Git is not installed or finds no repository, the
ignore files are read here; the user's own (`core.excludesFile`) is not. Such a `.git` may be that of a worktree whose
repository is elsewhere. Whatever else Git does not answer excludes.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from lsp_server.privacy.paths import Disk, to_system_path
from lsp_server.privacy.patterns import Rule, RuleList, UnreadableRulesError, find_rule, list_folders

_OPTIONS = ("-c", "core.fsmonitor=false", "--no-optional-locks", "--git-dir=.git", "--work-tree=.")
_CHECK = ("check-ignore", "--no-index", "--stdin", "-z", "--verbose", "--non-matching")


class _NoGitError(Exception):
    """Git is not installed."""


class _NoRepositoryError(_NoGitError):
    """Git does not take a `.git` for a repository."""


class GitRules:
    """Finds the rules by which Git ignores paths. That may take `time_limit_s` for each repository."""

    def __init__(self, environment: Mapping[str, str], time_limit_s: float = 2.0) -> None:
        """`environment`: that of the process. What it says of one repository is ignored."""
        self._environment = {
            name: value
            for name, value in environment.items()
            if not name.startswith("GIT_") or name.startswith("GIT_CONFIG")
        } | {"LC_ALL": "C"}
        self._time_limit_s = time_limit_s

    def find_reasons(self, paths: Iterable[str], disk: Disk) -> dict[str, str]:
        """Returns for those absolute paths that Git ignores which rule says so, and where it does not say, why not."""
        return self._find_reasons({path: os.path.dirname(path) for path in paths}, disk)

    def _find_reasons(self, folders: Mapping[str, str], disk: Disk) -> dict[str, str]:
        """`folders`: for each path, the folder in which and above which its repository is looked for."""
        by_top: dict[str, list[str]] = {}
        for path, folder in folders.items():
            top = _find_top(folder, disk)
            if top is not None:
                by_top.setdefault(top, []).append(path)
        found: dict[str, str] = {}
        for top, below in by_top.items():
            try:
                found |= self._find_in_repository(top, below, disk)
            except UnreadableRulesError as error:
                found |= dict.fromkeys(below, str(error))
        return found

    def _find_in_repository(self, top: str, paths: Sequence[str], disk: Disk) -> dict[str, str]:
        links = {path: _find_link(path, top, disk) for path in paths}
        rules: dict[str, Rule] = {}
        outside: dict[str, str] = {}
        behind = [path for path, link in links.items() if link != path]
        try:
            rules = self._check(top, list(dict.fromkeys(links.values())))
        except _NoGitError as error:
            behind = list(paths)
            if isinstance(error, _NoRepositoryError) and top != "/":  # they may belong to one further up
                outside = self._find_reasons(dict.fromkeys(paths, os.path.dirname(top)), disk)
        own = {path: _find_own_rule(path, top, disk) for path in behind}
        found = {path: rule for path in paths if (rule := own.get(path) or rules.get(links[path])) is not None}
        return outside | {path: f"git ignores it ({rule})" for path, rule in found.items()}

    def _check(self, top: str, paths: Sequence[str]) -> dict[str, Rule]:
        """Asks Git. None of the paths is behind a symbolic link."""
        asked = b"".join(b"." + os.fsencode(path[len(top.rstrip("/")) :]) + b"\0" for path in paths)
        fields = self._run(top, asked).split(b"\0")
        if fields[3::4] != asked.split(b"\0")[:-1] or not all(line.isdigit() or not line for line in fields[1::4]):
            raise _build_error("its answer is not one for each path")
        records = zip(paths, fields[0::4], fields[1::4], fields[2::4], strict=False)
        return {
            path: Rule(os.path.basename(os.fsdecode(source)), int(line), text.decode("latin-1"))
            for path, source, line, text in records
            if source and not text.startswith(b"!")
        }

    def _run(self, top: str, data: bytes) -> bytes:
        """Returns what Git says. Raises UnreadableRulesError, _NoGitError."""
        try:
            done = subprocess.run(
                ["git", *_OPTIONS, "-C", to_system_path(top), *_CHECK],
                cwd="/",
                env=self._environment,
                input=data,
                capture_output=True,
                timeout=self._time_limit_s,
            )
        except FileNotFoundError:
            is_empty = os.path.isdir(top + "/.git") and not os.path.exists(top + "/.git/HEAD")
            raise (_NoRepositoryError if is_empty else _NoGitError) from None
        except OSError as error:
            raise _build_error(f"it cannot be run: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise _build_error("it does not answer in time") from None
        problem = done.stderr
        if b"not a git repository" in problem:
            raise _NoRepositoryError
        if problem or done.returncode not in (0, 1):  # Git only warns of ignore files that it cannot read
            raise _build_error(problem.decode("utf-8", "replace") or f"exit status {done.returncode}")
        return done.stdout


def _find_own_rule(path: str, top: str, disk: Disk) -> Rule | None:
    def find_lists(folder: str) -> Sequence[RuleList]:
        own = [(os.path.join(each, ".gitignore"), each) for each in list_folders(folder, top)]
        own.append((os.path.join(top, ".git", "info", "exclude"), top))
        return [disk.read_rules(file, each) for file, each in own]

    return find_rule(path, top, find_lists)


def _build_error(reason: str) -> UnreadableRulesError:
    return UnreadableRulesError(f"Git does not report whether it ignores it: {' '.join(reason.split())}")


def _find_top(start: str, disk: Disk) -> str | None:
    """Returns the folder to ask Git in: the nearest with a `.git`, from `start` upwards; None if there is none."""
    folders = list_folders(start, "/")
    return next((folder for folder in folders if disk.find_status(os.path.join(folder, ".git")) is not None), None)


def _find_link(path: str, top: str, disk: Disk) -> str:
    """Returns the first symbolic link below `top` on the way to a path; the path itself if there is none."""
    return next(filter(disk.is_link, reversed(list_folders(path, top)[:-1])), path)
