import os
import sys
import tempfile
from pathlib import Path

import pytest
from platformdirs.macos import MacOS

from inference.errors import LaunchError
from inference.private_files import FileLock, make_private_folder, open_folder, open_private


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("existing", ["", "a", "a/b"])
def test_a_folder_is_accessible_to_its_owner_only(existing: str, tmp_path: Path) -> None:
    (tmp_path / existing).mkdir(mode=0o755, parents=True, exist_ok=True)
    make_private_folder(tmp_path / "a" / "b")
    assert _mode(tmp_path / "a" / "b") == 0o700


def test_a_folder_that_cannot_be_created_is_named_in_the_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LaunchError, match=f"cannot make {file}/a: Not a directory; choose another with --state-dir"):
        make_private_folder(file / "a")


def test_a_new_file_is_accessible_to_its_owner_only(tmp_path: Path) -> None:
    with open_private(tmp_path / "log", "wb") as file:
        file.write(b"text")
    assert _mode(tmp_path / "log") == 0o600


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_path_of_a_socket_is_short_whatever_its_folder_is_called(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", f"{tmp_path}/{60 * 'u'}")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)  # platformdirs obeys it on macOS, too
    folder = MacOS("midtoken").user_state_path / f"{60 * 'm'}-{12 * '0'}"  # the longest name of a server's folder
    folder.mkdir(parents=True)
    (folder / "file").touch()
    with tempfile.TemporaryDirectory(prefix=41 * "T", dir="/tmp") as temporary:  # as long as a user's on macOS
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        with open_folder(folder) as short:
            assert (short / "file").exists()
            assert len(os.fsencode(short / "99999-grpc:8001")) <= 103  # which macOS allows
        assert not any(Path(temporary).iterdir())


def test_a_file_that_cannot_be_opened_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=f"cannot open {tmp_path}: Is a directory"):
        FileLock(tmp_path)
