"""Folders, files and locks that only their owner can open. Logs and locks may show what is being edited."""

import contextlib
import errno
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

from inference.errors import LaunchError

_OTHERS_WRITE = 0o022


def make_private_folder(folder: Path) -> None:
    """Creates the folder and its parents, and denies other users access to the folder. Raises LaunchError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_ours = folder.stat().st_uid == os.getuid()
        if is_ours:
            folder.chmod(0o700)  # an older version may have created it with another mode
    except OSError as error:
        raise LaunchError(f"cannot make {folder}: {error.strerror}; choose another with --state-dir") from None
    if not is_ours:
        raise LaunchError(f"{folder} belongs to another user; choose another folder with --state-dir")


def has_sockets() -> bool:
    """Returns whether gRPC can listen on a socket in a folder here."""
    return sys.platform != "win32"


@contextlib.contextmanager
def open_folder(folder: Path) -> Iterator[Path]:
    """Yields a short path to the folder, because that of a socket may have 107 bytes only.

    Inside, it leads to the same folder even if another one takes its name. Raises OSError, also for a folder in which
    other users than root could put a socket.
    """
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        status = os.fstat(descriptor)
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_WRITE:
            raise OSError(errno.EPERM, "other users can write in its folder")
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def open_private(path: Path, mode: str) -> IO[Any]:
    """Like `open`, for writing; a file that it creates is closed to other users. Raises OSError."""
    return open(path, mode, opener=_open_for_owner)


class FileLock:
    """A lock on a file, through which processes see each other; not acquired at first.

    The kernel releases it when the process ends. As a context manager it closes itself.
    """

    def __init__(self, path: Path) -> None:
        """Creates the file if it is missing. Raises LaunchError if that fails."""
        self._path = path
        try:
            self._file = open_private(path, "a")
        except OSError as error:
            raise LaunchError(f"cannot open {path}: {error.strerror}; choose another folder with --state-dir") from None

    def try_acquire(self, *, shared: bool) -> bool:
        """Locks the file without waiting. Returns False if another lock is in the way.

        A shared lock is only in the way of one that is not. Raises LaunchError if the file system has no locks, like
        some network file systems.
        """
        try:
            fcntl.flock(self._file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
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


def _open_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
