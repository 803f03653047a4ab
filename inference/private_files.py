"""Folders, files and locks that only their owner can open. Logs and locks may show what is being edited."""

import contextlib
import errno
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import platformdirs

from inference.errors import LaunchError

_OTHERS_WRITE = 0o022
_OTHERS_ACCESS = 0o077
_OTHERS_MORE = 0o037  # than that a group reads it


def is_own(status: os.stat_result) -> bool:
    """Returns whether a file belongs to this user."""
    return status.st_uid == os.geteuid()


def make_private_folder(folder: Path, setting: str = "--state-dir") -> None:
    """Creates the folder and its parents, and denies other users access to the folder.

    Raises LaunchError, which names the setting that chooses another.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_ours = is_own(folder.stat())
        if is_ours:
            folder.chmod(0o700)  # an older version may have created it with another mode
    except OSError as error:
        raise LaunchError(f"cannot make {folder}: {error.strerror}; choose another with {setting}") from None
    if not is_ours:
        raise LaunchError(f"{folder} belongs to another user; choose another folder with {setting}")


def find_user_folder(kind: str) -> Path:
    """Returns midtoken's folder of a kind: `cache`, `data` or `state`. Raises LaunchError."""
    try:
        return Path(getattr(platformdirs, f"user_{kind}_path")("midtoken"))
    except RuntimeError:  # as in some containers
        raise LaunchError(
            "this user has no home folder: set HOME, or name folders with --model and --state-dir"
        ) from None


@contextlib.contextmanager
def open_folder(folder: Path) -> Iterator[Path]:
    """Yields a short path to the folder, because that of a socket may have 107 bytes only, and 103 on macOS.

    Inside, it leads to the same folder even if another one takes its name. Raises OSError, also for a folder in which
    other users than root could put a socket. On other systems than Linux, it is a link, in a folder that only this user
    can open; there, another folder that takes the name is followed.
    """
    if sys.platform != "linux":
        _check_folder(folder.stat())
        with tempfile.TemporaryDirectory() as private:
            (link := Path(private, "s")).symlink_to(folder.absolute())
            yield link
        return
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        _check_folder(os.fstat(descriptor))
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def open_private(path: Path, mode: str) -> IO[Any]:
    """Like `open`, for writing; a file that it creates is closed to other users. Raises OSError."""
    return open(path, mode, opener=lambda path, flags: os.open(path, flags, 0o600))


def read_private(path: Path, option: str) -> str:
    """Returns the text of a file with a secret. Raises LaunchError, which names the option, if others could read it.

    A file of root may be readable by a group.
    """
    try:
        state, text = path.stat(), path.read_text()
    except OSError as error:
        raise LaunchError(f"cannot read {path} of {option}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LaunchError(f"{path} of {option} is not text in UTF-8") from None
    if state.st_mode & (_OTHERS_ACCESS if is_own(state) else _OTHERS_MORE) or not (is_own(state) or state.st_uid == 0):
        raise LaunchError(
            f"{path} of {option} has secrets, so it must be a file that only you can read: chmod 600 {path}"
        )
    return text


class FileLock(contextlib.AbstractContextManager["FileLock"]):
    """A lock on a file, which one process holds at a time; not acquired at first.

    The kernel releases it when the process ends. As a context manager it releases itself.
    """

    def __init__(self, path: Path) -> None:
        """Creates the file if it is missing. Raises LaunchError if that fails."""
        self._path = path
        try:
            self._file = open_private(path, "a")
        except OSError as error:
            raise LaunchError(f"cannot open {path}: {error.strerror}; choose another folder with --state-dir") from None

    def try_acquire(self) -> bool:
        """Locks the file without waiting. Returns False if another process holds the lock.

        Raises LaunchError if the file system has no locks, like some network file systems.
        """
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise LaunchError(
                f"cannot lock {self._path}: {error.strerror}; choose a folder on a local disk with --state-dir"
            ) from None
        return True

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _check_folder(status: os.stat_result) -> None:
    if not (is_own(status) or status.st_uid == 0) or status.st_mode & _OTHERS_WRITE:
        raise OSError(errno.EPERM, "other users can write in its folder")
