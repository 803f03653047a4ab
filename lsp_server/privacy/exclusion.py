"""Which documents are excluded, and by what rule. Nothing of an excluded one is sent."""

import errno
import os
import posixpath
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from urllib.parse import unquote_to_bytes

from lsp_server.languages import list_endings
from lsp_server.privacy.credentials import find_credential_pattern
from lsp_server.privacy.ignore_rules import IgnoreRules, RuleFiles, UnreadableRulesError, show

_OWN_FILES = (".midtokenignore",)
_GIT_FILES = (".gitignore", ".git/info/exclude")
_MAX_NAMES = 1000  # that are remembered


class Policy:
    """Says why a document is excluded.

    The names of credential files, the setting `exclude`, the files .midtokenignore in the document's folder and all its
    parents, and Git can each only exclude: none of them includes what another one excludes. All paths of the document
    count, as it was opened and with symbolic links followed.

    It looks at files and runs Git, so it may take as long as they do. `Exclusions` calls it in a thread.
    """

    def __init__(self, environment: Mapping[str, str], git_limit_s: float = 2.0) -> None:
        """`environment`: that of the process, for Git. `git_limit_s`: how long Git may take for a repository."""
        self._files = RuleFiles()
        self._git = _Git(environment, git_limit_s)
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
        disk, names = _Disk(self._files), self._read_names(tuple(exclude), tuple(folder_uris))
        found = {uri: _find_reason_or_paths(uri, language, names, disk) for uri, language in languages.items()}
        ignored = self._git.find_reasons(
            [path for each in found.values() if isinstance(each, list) for path in each], disk
        )
        return {
            uri: next((ignored[path] for path in each if path in ignored), None) if isinstance(each, list) else each
            for uri, each in found.items()
        }


def _find_reason_or_paths(uri: str, language_id: str, names: "_NameRules", disk: "_Disk") -> str | list[str]:
    """Returns why a document is excluded, or the paths that Git must be asked about."""
    place = read_uri(uri)
    has_ending = any("." in posixpath.basename(path) for path in place.paths)
    is_stored = place.is_file and (has_ending or uri.lower().startswith("file:"))  # not so untitled:///Untitled-1
    paths = place.paths if is_stored else names.list_possible_paths(place.paths, language_id)
    if names.problem is not None:
        return names.problem
    if any("\0" in path for path in paths):
        return "its path has a NUL byte, and no file has such a path"
    reason = next(filter(None, map(names.find_reason, paths)), None)
    if reason is not None:
        return reason
    if place.elsewhere is not None:
        return f"it is on {place.elsewhere}, where its ignore files cannot be read"
    try:
        spellings = [each for path in paths if path.startswith("/") for each in iter_spellings(path, disk.is_link)]
        for each in spellings:
            if reason := names.find_reason(each) or disk.find_rule(each, "/", _OWN_FILES):
                return reason
        return spellings
    except UnreadableRulesError as error:
        return str(error)
    except OSError as error:
        return f"its path cannot be followed: {error.strerror}"


class _NameRules:
    """The rules that need no look at files: names of credential files, and the setting `exclude`."""

    def __init__(self, patterns: Sequence[str], folder_uris: Sequence[str]) -> None:
        self.problem: str | None = None
        self.folders = [posixpath.normpath(path) for uri in folder_uris for path in read_uri(uri).paths[:1]]
        self._roots = dict.fromkeys(["/", *self.folders, *map(os.path.realpath, self.folders)])
        self.find_reason = lru_cache(_MAX_NAMES)(self._find_reason)
        try:
            self._setting = IgnoreRules(patterns)
            for pattern in self._setting.useless[:1]:
                self.problem = (
                    f"setting exclude: {show(pattern)} is a pattern that can match nothing, so please correct it"
                )
        except UnreadableRulesError as error:
            self.problem = f"setting exclude: {error}"

    def list_possible_paths(self, names: Sequence[str], language_id: str) -> list[str]:
        """Returns where a document without a file may be stored: at the top of the workspace, under its language."""
        spelled = [name + ending for name in names or ["untitled"] for ending in ("", *list_endings(language_id))]
        return [*spelled, *(posixpath.join(folder, name.lstrip("/")) for folder in self.folders for name in spelled)]

    def _find_reason(self, path: str) -> str | None:
        """Judges a path by itself. It need not be one of this machine."""
        path = "/" + path.lstrip("/")
        if (pattern := find_credential_pattern(path)) is not None:
            return f"it looks like a credentials file (`{pattern}`)"
        below = [path.removeprefix(root.rstrip("/") + "/") for root in self._roots if _is_below(path, root)]
        rule = next(filter(None, map(self._setting.find, below)), None)
        return None if rule is None else f"setting exclude: {show(rule.text)}"


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


class _Disk:
    """What is on the disk at one moment: each path is looked at once, because that may take milliseconds."""

    def __init__(self, files: RuleFiles) -> None:
        self._read = cache(files.read)
        self.exists, self.is_link = cache(os.path.lexists), cache(os.path.islink)

    def find_rule(self, path: str, top: str, names: Sequence[str]) -> str | None:
        """Returns the rule that excludes a path, in the files of these names in its folder and above, up to `top`."""
        for folder in _list_folders(path, top):
            for name in names:
                rules = self._read(os.path.join(folder, name))
                rule = rules and rules.find(path[len(folder) :].lstrip("/"))
                if rule:
                    return f"`{os.path.basename(name)}` line {rule.line}: {show(rule.text)}"
        return None


def _list_folders(path: str, top: str = "/") -> list[str]:
    """Returns the folders that a path is in, up to `top`, the innermost first."""
    folders = [os.path.dirname(path)]
    while folders[-1] not in (top, os.path.dirname(folders[-1])):
        folders.append(os.path.dirname(folders[-1]))
    return folders


_DRIVE = re.compile(r"/*([A-Za-z]):(?=[/\\]|$)/?")


@dataclass(frozen=True, slots=True)
class UriPath:
    """Where a document is. Paths that do not begin with `/` are only names."""

    paths: tuple[str, ...] = ()  # `?` and `#` may end a path or be a part of it, so both readings count
    elsewhere: str | None = None  # the machine or drive, if the paths are not those of this machine

    @property
    def is_file(self) -> bool:
        """False for a document that is in no folder yet."""
        return self.elsewhere is not None or any(path.startswith("/") for path in self.paths)


def read_uri(uri: str) -> UriPath:
    """Returns the paths that a URI names, with `/` between their parts. Other schemes than `file` name paths, too.

    So `untitled:/home/me/.env` is judged as the file that it will be, and a cell of a notebook as its notebook.
    """
    scheme, _, rest = uri.partition(":")
    if len(scheme) == 1:  # not a URI, but a path on Windows
        return read_uri(f"file:///{uri}")
    authority = ""
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
    if _DRIVE.match(_decode(authority)):  # file://C:/folder is wrong, but written
        authority, rest = "", f"/{authority}{rest}"
    paths = tuple(dict.fromkeys(_decode(part) for part in (re.split("[?#]", rest)[0], rest) if part))
    drive = _DRIVE.match(paths[0]) if paths else None
    if drive:
        slashes = (path.replace("\\", "/").lstrip("/") for path in paths)
        return UriPath(tuple(f"/{path}" for path in slashes), f"the drive {drive[1].upper()}:")
    return UriPath(paths, None if authority in ("", "localhost") else f"the machine {_decode(authority)}")


def _decode(text: str) -> str:
    """Bytes that are not UTF-8 become what they are in the paths of `os`."""
    return os.fsdecode(unquote_to_bytes(text.encode("utf-8", "surrogatepass")))


_MAX_LINKS = 40  # as Linux


def iter_spellings(path: str, is_link: Callable[[str], bool]) -> Iterator[str]:
    """Yields absolute paths, each with one symbolic link less. The file need not exist. Raises OSError for a loop.

    All of them count: a link may lead into an excluded folder and out of it again.
    """
    for _ in range(_MAX_LINKS):
        yield "/" + posixpath.normpath(path).lstrip("/")  # POSIX lets a path begin with two slashes
        followed = _follow_first_link(path, is_link)
        if followed is None:
            return
        path = followed
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _follow_first_link(path: str, is_link: Callable[[str], bool]) -> str | None:
    """Returns the path with its first symbolic link replaced by the link's target; None if there is no link.

    `..` goes to the parent of the folder that the path before it leads to, so a link before `..` must be followed.
    """
    done = ""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for index, part in enumerate(parts):
        here = os.path.dirname(done) if part == ".." else os.path.join("/", done, part)
        if part != ".." and is_link(here):
            return os.path.join("/", done, os.readlink(here), *parts[index + 1 :])
        done = here
    return None


_OPTIONS = ("-c", "core.fsmonitor=false", "--no-optional-locks", "--git-dir=.git", "--work-tree=.")
_CHECK = ("check-ignore", "--no-index", "--stdin", "-z", "--verbose", "--non-matching")


class _Git:
    """Asks Git which paths it ignores, anew each time, for all paths of a repository at once. It takes some 2 ms.

    The repository may be anybody's, so nothing that its configuration names is run: `check-ignore --no-index` starts no
    program and does not read the index, and the file system monitor is switched off all the same. `--git-dir` names the
    repository, so one of another user needs no entry in `safe.directory`. The files are those beside its `.git`, also
    where `core.worktree` names a folder that was moved, or `core.bare` is set.

    Git knows nothing of what is behind a symbolic link. There, and where Git is not installed or finds no repository,
    the ignore files are read here. Whatever else Git does not answer excludes.
    """

    def __init__(self, environment: Mapping[str, str], time_limit_s: float) -> None:
        self._environment = {
            name: value
            for name, value in environment.items()
            if not name.startswith("GIT_") or name.startswith("GIT_CONFIG")
        } | {"LC_ALL": "C"}
        self._time_limit_s = time_limit_s

    def find_reasons(self, paths: Sequence[str], disk: _Disk) -> dict[str, str]:
        """Returns for those absolute paths that Git ignores which rule says so, and where it does not say, why not."""
        found: dict[str, str] = {}
        tops = {path: [each for each in _list_folders(path) if disk.exists(f"{each}/.git")] for path in paths}
        while tops := {path: more for path, more in tops.items() if more}:
            top = next(iter(tops.values()))[0]
            links = {path: _find_link(path, top, disk) for path, more in tops.items() if more[0] == top}
            try:
                said = self._check(top, list(dict.fromkeys(links.values())))
                own = [path for path, link in links.items() if said is None or link != path]
                rules = {path: disk.find_rule(path, top, _GIT_FILES) for path in own}
                rules |= {path: said[link] for path, link in links.items() if said and link in said}
                found |= {path: f"git ignores it ({rule})" for path, rule in rules.items() if rule is not None}
            except UnreadableRulesError as error:
                said = {}
                found |= dict.fromkeys(links, str(error))
            # Without a repository here, the paths may belong to one further up.
            tops |= {path: tops[path][1:] if said is None else [] for path in links}
        return found

    def _check(self, top: str, paths: Sequence[str]) -> dict[str, str] | None:
        """Asks Git about paths, none of which is behind a symbolic link. Returns its rules; None if it knows nothing.

        Raises UnreadableRulesError.
        """
        asked = b"".join(b"." + os.fsencode(path[len(top.rstrip("/")) :]) + b"\0" for path in paths)
        said = self._run(top, asked)
        if said is None:
            return None
        fields = said.split(b"\0")
        if fields[3::4] != asked.split(b"\0")[:-1] or not all(line.isdigit() or not line for line in fields[1::4]):
            raise _build_error("its answer is not one for each path")
        records = [map(os.fsdecode, each) for each in zip(fields[0::4], fields[1::4], fields[2::4], strict=False)]
        return {
            path: f"`{os.path.basename(source)}` line {line}: {show(text)}"
            for path, (source, line, text) in zip(paths, records, strict=False)
            if source and not text.startswith("!")
        }

    def _run(self, top: str, data: bytes) -> bytes | None:
        command = ["git", *_OPTIONS, "-C", top, *_CHECK]
        try:
            done = subprocess.run(
                command, cwd="/", env=self._environment, input=data, capture_output=True, timeout=self._time_limit_s
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _build_error(f"it cannot be run: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise _build_error("it does not answer in time") from None
        if b"not a git repository" in done.stderr:
            return None
        if done.stderr or done.returncode not in (0, 1):  # Git only warns of ignore files that it cannot read
            raise _build_error(done.stderr.decode("utf-8", "replace") or f"exit status {done.returncode}")
        return done.stdout


def _build_error(reason: str) -> UnreadableRulesError:
    return UnreadableRulesError(f"Git does not report whether it ignores it: {' '.join(reason.split())}")


def _find_link(path: str, top: str, disk: _Disk) -> str:
    """Returns the first symbolic link below `top` on the way to a path; the path itself if there is none."""
    return next(filter(disk.is_link, reversed([path, *_list_folders(path, top)[:-1]])), path)
