"""A lock on a file, through which processes see each other. The kernel releases it when the process ends."""

import fcntl
from enum import IntEnum
from pathlib import Path
from typing import Self

from inference.errors import LaunchError
from inference.serving.private_files import open_private


class LockKind(IntEnum):
    """Which other locks may be held at the same time."""

    SHARED = fcntl.LOCK_SH  # other shared locks
    EXCLUSIVE = fcntl.LOCK_EX  # none


class FileLock:
    """The lock of one file; not acquired at first. As a context manager it closes itself."""

    def __init__(self, path: Path) -> None:
        """Creates the file if it is missing. Raises LaunchError if that fails."""
        self._path = path
        try:
            self._file = open_private(path, "a")
        except OSError as error:
            raise LaunchError(f"cannot open {path}: {error.strerror}; choose another folder with --state-dir") from None

    def try_acquire(self, kind: LockKind) -> bool:
        """Locks the file without waiting. Returns False if another lock is in the way.

        Raises LaunchError if the file system has no locks, like some network file systems.
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
        """Releases the lock and keeps the file open."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Releases the lock and closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
