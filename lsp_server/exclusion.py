"""Which documents are excluded, and by what rule. Nothing of an excluded one is sent."""

import asyncio
import os
import posixpath
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from urllib.parse import unquote_to_bytes

from lsp_server.ignore_rules import (
    IgnoreRules,
    UnreadableRulesError,
    find_credential_pattern,
    find_rule,
    list_folders,
    show,
)
from lsp_server.languages import list_endings


class Policy:
    """Says why a document is excluded.

    The names of credential files, the setting `exclude`, the files .midtokenignore in the document's folder and all its
    parents, and Git can each only exclude: none of them includes what another one excludes. All paths of the document
    count, as it was opened and with symbolic links followed.

    It looks at files and runs Git, so it may take as long as they do. `Exclusions` calls it in a thread.
    """

    def __init__(self, environment: Mapping[str, str], git_limit_s: float = 2.0) -> None:
        """`environment`: that of the process, for Git. `git_limit_s`: how long Git may take for a repository."""
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
        try:
            names = self._read_names(tuple(exclude), tuple(folder_uris))
        except UnreadableRulesError as error:
            return dict.fromkeys(languages, f"setting exclude: {error}")
        found = {uri: _find_reason_or_paths(uri, language, names) for uri, language in languages.items()}
        ignored = self._git.find_reasons([path for each in found.values() if isinstance(each, list) for path in each])
        return {
            uri: next((ignored[path] for path in each if path in ignored), None) if isinstance(each, list) else each
            for uri, each in found.items()
        }


def _find_reason_or_paths(uri: str, language_id: str, names: "_NameRules") -> str | list[str]:
    """Returns why a document is excluded, or the paths that Git must be asked about."""
    paths, elsewhere = read_uri(uri)
    is_file = elsewhere is not None or any(path.startswith("/") for path in paths)
    is_named = uri.lower().startswith("file:") or any("." in posixpath.basename(path) for path in paths)
    if not (is_file and is_named):  # such as untitled:///Untitled-1
        paths = names.list_possible_paths(paths, language_id)
    if any("\0" in path for path in paths):
        return "its path has a NUL byte, and no file has such a path"
    if (reason := next(filter(None, map(names.find_reason, paths)), None)) is not None:
        return reason
    if elsewhere is not None:
        return f"it is on {elsewhere}, where its ignore files cannot be read"
    try:
        spellings = [each for path in paths if path.startswith("/") for each in _iter_spellings(path)]
        reasons = (names.find_reason(each) or find_rule(each, "/", (".midtokenignore",)) for each in spellings)
        return next(filter(None, reasons), None) or spellings
    except UnreadableRulesError as error:
        return str(error)
    except OSError as error:
        return f"its path cannot be followed: {error.strerror}"


class _NameRules:
    """The rules that need no look at files: names of credential files, and the setting `exclude`."""

    def __init__(self, patterns: Sequence[str], folder_uris: Sequence[str]) -> None:
        """Raises UnreadableRulesError."""
        self.folders = [posixpath.normpath(path) for uri in folder_uris for path in read_uri(uri)[0]]
        self._roots = dict.fromkeys(
            each.rstrip("/") + "/" for each in ("/", *self.folders, *map(os.path.realpath, self.folders))
        )
        self._setting = IgnoreRules(patterns)
        for pattern in self._setting.useless[:1]:
            raise UnreadableRulesError(f"{show(pattern)} is a pattern that can match nothing, so please correct it")
        self.find_reason = lru_cache(1000)(self._find_reason)

    def list_possible_paths(self, names: Sequence[str], language_id: str) -> tuple[str, ...]:
        """Returns where a document without a file may be stored: at the top of the workspace, under its language."""
        spelled = [name + ending for name in names or ["untitled"] for ending in ("", *list_endings(language_id))]
        stored = (posixpath.join(folder, name.lstrip("/")) for folder in self.folders for name in spelled)
        return *spelled, *stored

    def _find_reason(self, path: str) -> str | None:
        """Judges a path by itself. It need not be one of this machine."""
        path = "/" + path.lstrip("/")
        if (pattern := find_credential_pattern(path)) is not None:
            return f"it looks like a credentials file (`{pattern}`)"
        below = [path.removeprefix(root) for root in self._roots if path.startswith(root)]
        rule = next(filter(None, map(self._setting.find, below)), None)
        return None if rule is None else f"setting exclude: {show(rule.text)}"


_PLACE = re.compile(r"(?:[^/?#:]{2,}:)?(?://([^/]*))?")  # a scheme of one letter is a drive
_DRIVE = re.compile(r"/*([A-Za-z]):(?=[/\\]|$)")
_MAX_LINKS = 40  # as Linux


def read_uri(uri: str) -> tuple[tuple[str, ...], str | None]:
    """Returns the paths that a URI names, and the machine or drive if they are not of this machine.

    Paths that do not begin with `/` are only names. Other schemes than `file` name paths, too: `untitled:/home/me/.env`
    is judged as the file that it will be, and a cell of a notebook as its notebook. `?` and `#` may end a path or be a
    part of it, so both readings count.
    """
    authority, rest = _PLACE.split(uri, maxsplit=1)[1:]
    authority = _decode(authority or "")
    if _DRIVE.match(authority):  # file://C:/folder is wrong, but written
        authority, rest = "", f"/{authority}{rest}"
    paths = tuple(dict.fromkeys(_decode(part) for part in (re.split("[?#]", rest)[0], rest) if part))
    if paths and (drive := _DRIVE.match(paths[0])) is not None:
        return tuple("/" + path.replace("\\", "/").lstrip("/") for path in paths), f"the drive {drive[1].upper()}:"
    return paths, None if authority in ("", "localhost") else f"the machine {authority}"


def _decode(text: str) -> str:
    """Bytes that are not UTF-8 become what they are in the paths of `os`."""
    return os.fsdecode(unquote_to_bytes(text.encode("utf-8", "surrogatepass")))


def _iter_spellings(path: str) -> Iterator[str]:
    """Yields where an absolute path leads, and the path itself, each time with one symbolic link more followed.

    All of them count: a link may lead into an excluded folder and out of it again. The file need not exist.
    """
    yield os.path.realpath(path)
    for _ in range(_MAX_LINKS):
        path = "/" + posixpath.normpath(path).lstrip("/")  # POSIX lets a path begin with two slashes
        yield path
        link = next(filter(os.path.islink, reversed([path, *list_folders(path)])), None)
        if link is None:
            return
        path = posixpath.join(posixpath.dirname(link), os.readlink(link), path[len(link) + 1 :])


_GIT_FILES = (".gitignore", ".git/info/exclude")
_OPTIONS = ("-c", "core.fsmonitor=false", "--no-optional-locks", "--git-dir=.git", "--work-tree=.")
_CHECK = ("check-ignore", "--no-index", "--stdin", "-z", "--verbose")


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

    def find_reasons(self, paths: Sequence[str]) -> dict[str, str]:
        """Returns for those absolute paths that Git ignores which rule says so, and where it does not say, why not."""
        found: dict[str, str] = {}
        tops = {path: [each for each in list_folders(path) if os.path.lexists(f"{each}/.git")] for path in paths}
        for top in dict.fromkeys(each[0] for each in tops.values() if each):
            own = [path for path in paths if tops[path][:1] == [top]]
            asked = [path for path in own if not any(map(os.path.islink, list_folders(path, top)[:-1]))]
            try:
                said = self._check(top, asked)
                for path in own:
                    if said is not None and path in asked:
                        rule = said.get(path)
                    else:  # without a repository here, the path may belong to one further up
                        rule = find_rule(path, top if said is not None else tops[path][-1], _GIT_FILES)
                    if rule is not None:
                        found[path] = f"git ignores it ({rule})"
            except UnreadableRulesError as error:
                found |= dict.fromkeys(own, str(error))
        return found

    def _check(self, top: str, paths: Sequence[str]) -> dict[str, str] | None:
        """Asks Git about paths, none of which is behind a symbolic link. Returns its rules; None if it knows nothing.

        Raises UnreadableRulesError.
        """
        names = {os.fsencode("." + path[len(top.rstrip("/")) :]): path for path in paths}
        try:
            done = subprocess.run(
                ["git", *_OPTIONS, "-C", top, *_CHECK],
                cwd="/",
                env=self._environment,
                input=b"".join(name + b"\0" for name in names),
                capture_output=True,
                timeout=self._time_limit_s,
            )
        except FileNotFoundError:
            return None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _build_error(getattr(error, "strerror", "it does not answer in time")) from None
        if b"not a git repository" in done.stderr:
            return None
        if done.stderr or done.returncode not in (0, 1):  # Git only warns of ignore files that it cannot read
            raise _build_error(done.stderr.decode("utf-8", "replace") or f"exit status {done.returncode}")
        fields = done.stdout.split(b"\0")
        records = zip(fields[0::4], fields[1::4], fields[2::4], fields[3::4], strict=False)
        return {
            names[name]: f"`{os.path.basename(os.fsdecode(file))}` line {line.decode()}: {show(os.fsdecode(text))}"
            for file, line, text, name in records
            if not text.startswith(b"!")
        }


def _build_error(reason: str) -> Exception:
    return UnreadableRulesError(f"Git does not report whether it ignores it: {' '.join(reason.split())}")


_VALID_S = 1.0  # an edit of an ignore file counts after this time
UNKNOWN = "whether a rule excludes it is not known yet"


class Exclusions:
    """Asks the policy about documents, and keeps its answers.

    The policy looks at files and asks Git, which may take long, so it runs in threads. What it said that a document may
    be sent is valid for a second, and is asked again after half of it. A document that it excluded stays excluded until
    it says otherwise. While nothing is known or valid, nothing may be sent.
    """

    def __init__(self, policy: Policy, now_s: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._now_s = now_s
        self._rules: tuple[Sequence[str], Sequence[str]] = (), ()  # that answers follow
        self._are_rules_known = asyncio.Event()
        self._refusal: str | None = None  # why nothing may be sent
        self._answers: dict[str, tuple[str | None, float]] = {}  # why a document is excluded, and the time, by URI
        self._looks: dict[str, asyncio.Task[None]] = {}  # those under way
        self._threads = ThreadPoolExecutor(4, "midtoken-rules")  # a slow look at other files must not hold up a key

    def configure(self, exclude: Sequence[str], folder_uris: Sequence[str], refusal: str | None = None) -> None:
        """Sets what the policy is given, or why nothing may be sent whatever it says."""
        self._refusal = refusal
        rules = tuple(exclude), tuple(folder_uris)
        if rules != self._rules:
            self._rules = rules
            self._answers.clear()
        self._are_rules_known.set()

    async def ask(self, languages: Mapping[str, str], wait_s: float | None = None) -> None:
        """Asks the policy about documents, and waits until the answer is known; None: however long that takes.

        `languages`: those of the documents, by URI.
        """
        old = {uri: language for uri, language in languages.items() if not self._is_valid(uri, _VALID_S / 2)}
        new = {uri: language for uri, language in old.items() if uri not in self._looks}
        if new:
            self._looks |= dict.fromkeys(new, asyncio.create_task(self._look(new)))
        looks = {self._looks[uri] for uri in old if self.find_exclusion(uri) == UNKNOWN}
        if looks:
            await asyncio.wait(looks, timeout=wait_s)

    def find_exclusion(self, uri: str) -> str | None:
        """Returns why nothing of a document may be sent, or UNKNOWN; None if it may. See `Policy.find_exclusion`."""
        exclusion, _ = self._answers.get(uri, (None, 0.0))
        return self._refusal or exclusion or (None if self._is_valid(uri, _VALID_S) else UNKNOWN)

    def close(self) -> None:
        """Stops asking the policy."""
        for look in self._looks.values():
            look.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _is_valid(self, uri: str, max_age_s: float) -> bool:
        return uri in self._answers and self._now_s() - self._answers[uri][1] < max_age_s

    async def _look(self, languages: Mapping[str, str]) -> None:
        """Asks until the answer follows the rules of this moment."""
        try:
            await self._are_rules_known.wait()
            rules = None
            while rules is not self._rules:
                rules = self._rules
                look = partial(self._policy.find_exclusions, languages, *rules)
                found = await asyncio.get_running_loop().run_in_executor(self._threads, look)
            self._answers |= {uri: (exclusion, self._now_s()) for uri, exclusion in found.items()}
        finally:
            for uri in languages:
                del self._looks[uri]
