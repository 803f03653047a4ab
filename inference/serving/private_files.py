"""Folders and files that only the user who runs midtoken can read: logs and locks may tell what is being edited."""

import os
from pathlib import Path
from typing import IO, Any

from inference.errors import LaunchError


def make_private_folder(folder: Path) -> None:
    """Makes the folder, and those above it, and closes it to other users. Raises LaunchError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_ours = folder.stat().st_uid == os.getuid()
        if is_ours:
            folder.chmod(0o700)  # an older version may have left it open
    except OSError as error:
        raise LaunchError(f"cannot make {folder}: {error.strerror}; choose another with --state-dir") from None
    if not is_ours:
        raise LaunchError(f"{folder} belongs to another user; choose another folder with --state-dir")


def open_private(path: Path, mode: str) -> IO[Any]:
    """The file, opened for writing as `open` does, with no access for other users. Raises OSError."""
    return open(path, mode, opener=_open_for_owner)


def _open_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
