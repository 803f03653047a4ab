"""A lock on a file, by which processes find out about each other. The kernel frees it when its process ends."""

import fcntl
from enum import IntEnum
from pathlib import Path
from typing import Self

from inference.errors import LaunchError
from inference.serving.private_files import open_private


class LockKind(IntEnum):
    """Who else may hold the lock at the same time."""

    SHARED = fcntl.LOCK_SH  # others that lock it shared
    EXCLUSIVE = fcntl.LOCK_EX  # nobody


class FileLock:
    """The lock of one file, free at first. Usable as a context manager, which closes it."""

    def __init__(self, path: Path) -> None:
        """Makes the file where it is missing. Raises LaunchError where that fails."""
        self._path = path
        try:
            self._file = open_private(path, "a")
        except OSError as error:
            raise LaunchError(f"cannot open {path}: {error.strerror}; choose another folder with --state-dir") from None

    def try_acquire(self, kind: LockKind) -> bool:
        """Locks the file; False where another holder is in the way.

        Raises LaunchError where the file system has no locks, as some network file systems do not.
        """
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise LaunchError(
                f"cannot lock {self._path}: {error.strerror}; choose a folder on a local disk with --state-dir"
            ) from None
        return True

    def release(self) -> None:
        """Frees the lock and keeps the file open."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Frees the lock and closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
