from pathlib import Path

import pytest

from inference.errors import LaunchError
from inference.serving.private_files import make_private_folder, open_private


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_folder_is_accessible_to_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_private_folder(folder)
    assert _mode(folder) == 0o700


def test_an_existing_open_folder_is_restricted_to_its_owner(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir(mode=0o755)
    make_private_folder(folder)
    assert _mode(folder) == 0o700


def test_a_folder_that_cannot_be_created_is_named_in_the_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LaunchError, match=f"cannot make {file}/a: Not a directory; choose another with --state-dir"):
        make_private_folder(file / "a")


def test_a_new_file_is_accessible_to_its_owner_only(tmp_path: Path) -> None:
    with open_private(tmp_path / "log", "wb") as file:
        file.write(b"text")
    assert _mode(tmp_path / "log") == 0o600
