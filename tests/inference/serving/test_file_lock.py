import errno
import fcntl
from pathlib import Path

import pytest

from inference.errors import LaunchError
from inference.serving.file_lock import FileLock, LockKind


def test_two_shared_locks_can_be_held_together(tmp_path: Path) -> None:
    with FileLock(tmp_path / "a") as first, FileLock(tmp_path / "a") as second:
        assert first.try_acquire(LockKind.SHARED)
        assert second.try_acquire(LockKind.SHARED)
        assert not second.try_acquire(LockKind.EXCLUSIVE)


def test_release_and_close_free_an_exclusive_lock(tmp_path: Path) -> None:
    with FileLock(tmp_path / "a") as second:
        with FileLock(tmp_path / "a") as first:
            assert first.try_acquire(LockKind.EXCLUSIVE)
            assert not second.try_acquire(LockKind.SHARED)
            first.release()
            assert second.try_acquire(LockKind.EXCLUSIVE)
            second.release()
            assert first.try_acquire(LockKind.EXCLUSIVE)
        assert second.try_acquire(LockKind.EXCLUSIVE)


def test_a_file_that_cannot_be_opened_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=f"cannot open {tmp_path}: Is a directory"):
        FileLock(tmp_path)


def test_a_file_system_without_locks_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: object, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    path = tmp_path / "a"
    with FileLock(path) as lock:
        monkeypatch.setattr(fcntl, "flock", refuse)
        with pytest.raises(LaunchError, match=f"cannot lock {path}: No locks available; choose a folder on a local"):
            lock.try_acquire(LockKind.SHARED)
