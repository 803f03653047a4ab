"""Folders and files that only their owner can read. Logs and locks may show what is being edited."""

import os
from pathlib import Path
from typing import IO, Any

from inference.errors import LaunchError


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


def open_private(path: Path, mode: str) -> IO[Any]:
    """Like `open`, for writing; a file that it creates is closed to other users. Raises OSError."""
    return open(path, mode, opener=_open_for_owner)


def _open_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
