"""The process that reads a workspace folder into its index, in the background and at the lowest priority.

It reads jobs as lines of JSON, does them one after the other, and writes a line of JSON with the state of the index
after each. It ends with its input. A file is read if the rules that hold for open documents allow it.
"""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from lsp_server.exclusion import Policy
from lsp_server.project.declarations import summarize
from lsp_server.project.grammar import BY_EXTENSION, load_grammar
from lsp_server.project.index import Index, remove_database

MAX_FILES = 100_000
_MAX_BYTES = 500_000  # of a file
_BATCH = 500  # files that the policy is asked about at once
_UNUSED_S = 90 * 86_400.0
_GENERATED = {"node_modules", "__pycache__"}  # folders that are not read where Git does not say so


@dataclass(frozen=True, slots=True)
class Job:
    """What to read. Paths are those of the system."""

    folder: str
    exclude: tuple[str, ...] = ()  # that setting
    paths: tuple[str, ...] | None = None  # None: all files of the folder


@dataclass(frozen=True, slots=True)
class Report:
    """The state of an index."""

    languages: dict[str, int]  # the number of files of each
    num_excluded: int = 0  # files that a rule excludes
    num_unread: int = 0  # files that are too large, no text, or were not readable
    num_left_out: int = 0  # files beyond MAX_FILES


class Indexer:
    """Keeps the index of one folder up to date."""

    def __init__(self, index: Index, policy: Policy) -> None:
        self._index = index
        self._policy = policy
        self._excluded: set[str] = set()
        self._unread: set[str] = set()
        self._num_left_out = 0

    def update(self, job: Job) -> Report:
        """Reads the files that have changed, and forgets those that are gone or excluded now."""
        folder, states = Path(job.folder), self._index.list_states()
        paths = iter(
            _list_files(folder) if job.paths is None else filter(None, (_relate(each, folder) for each in job.paths))
        )
        gone = set(states) if job.paths is None else set[str]()
        room = MAX_FILES if job.paths is None else MAX_FILES - len(states)
        while batch := list(islice(paths, min(_BATCH, max(room, 0)))):
            room -= len(batch)
            with self._index.transaction():
                gone -= self._read_batch(folder, job.exclude, batch, states)
        self._index.remove(gone)
        self._num_left_out = sum(1 for _ in paths)
        return self._report()

    def _read_batch(self, folder: Path, exclude: Sequence[str], paths: list[str], states: dict[str, str]) -> set[str]:
        """Returns the paths that stay in the index."""
        uris = {path: (folder / path).as_uri() for path in paths}
        found = self._policy.find_exclusions(dict.fromkeys(uris.values(), ""), exclude, [folder.as_uri()])
        excluded = {path for path in paths if found[uris[path]] is not None}
        self._excluded = self._excluded - {*paths} | excluded
        allowed = [path for path in paths if path not in excluded]
        self._unread = self._unread - {*paths} | {
            path for path in allowed if not self._read(folder, path, states.get(path))
        }
        kept = {*allowed} - self._unread
        self._index.remove({*paths} - kept)
        return kept

    def _read(self, folder: Path, path: str, known: str | None) -> bool:
        """Reads a file if it has changed. Returns False if it cannot be read as text."""
        with suppress(OSError), open(folder / path, "rb") as file:
            state = _find_state(file.fileno())
            if state == known:
                return True
            source = file.read(_MAX_BYTES + 1)
            if len(source) <= _MAX_BYTES and b"\0" not in source and _find_state(file.fileno()) == state:
                self._index.put(path, state, summarize(source, load_grammar(BY_EXTENSION[os.path.splitext(path)[1]])))
                return True
        return False

    def _report(self) -> Report:
        languages = Counter(BY_EXTENSION[os.path.splitext(path)[1]] for path in self._index.list_states())
        return Report(dict(languages), len(self._excluded), len(self._unread), self._num_left_out)


def _relate(path: str, folder: Path) -> str | None:
    """Returns the path from the folder on; None if it is outside, a link, or of no known language."""
    with suppress(ValueError):
        if os.path.splitext(path)[1] in BY_EXTENSION and not os.path.islink(path):
            return Path(path).relative_to(folder).as_posix()
    return None


def _list_files(folder: Path) -> Iterator[str]:
    """Yields the files of known languages, in the order of Git or of the folders. Links are left out."""
    for path in _list_by_git(folder) or _walk(folder):
        if os.path.splitext(path)[1] in BY_EXTENSION and not os.path.islink(folder / path):
            yield path


def _list_by_git(folder: Path) -> list[str]:
    """Returns the files that Git knows or does not ignore; none outside of a worktree."""
    command = [
        "git",
        "-C",
        str(folder),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--deduplicate",
    ]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
        return sorted({os.fsdecode(each) for each in done.stdout.split(b"\0") if each}) if done.returncode == 0 else []
    return []


def _walk(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _GENERATED)
        yield from ((Path(place) / name).relative_to(folder).as_posix() for name in sorted(names))


def _find_state(file: int) -> str:
    status = os.fstat(file)
    return f"{status.st_mtime_ns} {status.st_size}"


def remove_unused(index_dir: Path, now_s: float) -> None:
    """Removes the indexes of folders that nobody has opened for long."""
    for database in index_dir.glob("*.db"):
        if database.stat().st_mtime < now_s - _UNUSED_S:
            remove_database(database)


def run(database: Path, jobs: Iterable[str]) -> Iterator[str]:
    """Does jobs, and yields a report of each.

    Raises sqlite3.DatabaseError. An index that is damaged is removed before, so that the next run starts a new one.
    """
    try:
        with closing(Index(database)) as index:
            os.utime(database)  # for `remove_unused`
            indexer = Indexer(index, Policy(os.environ))
            for line in jobs:
                fields = json.loads(line)
                paths = None if fields["paths"] is None else tuple(fields["paths"])
                yield json.dumps(asdict(indexer.update(Job(fields["folder"], tuple(fields["exclude"]), paths))))
    except sqlite3.OperationalError:  # the disk is full, or another process writes
        raise
    except sqlite3.DatabaseError:
        remove_database(database)
        raise


if __name__ == "__main__":
    os.nice(19)
    os.umask(0o077)
    remove_unused(Path(sys.argv[1]).parent, time.time())
    for report in run(Path(sys.argv[1]), sys.stdin):
        print(report, flush=True)
