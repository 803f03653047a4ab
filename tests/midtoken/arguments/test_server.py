import argparse
import os
from pathlib import Path

import pytest

from inference.errors import LaunchError
from midtoken.arguments.server import ServerArguments, add_server_arguments


@pytest.fixture
def arguments() -> ServerArguments:
    parser = argparse.ArgumentParser()
    add_server_arguments(parser)
    return ServerArguments.from_options(parser.parse_args([]))


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_servers_are_found_in_the_users_runtime_folder(
    arguments: ServerArguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    assert arguments.entry.folder.parent == tmp_path / "midtoken"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_the_runtime_folder_of_another_user_is_not_used(
    arguments: ServerArguments, state_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "theirs"))
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)

    assert arguments.entry.folder.parent == state_home / "midtoken"


@pytest.mark.parametrize("value", ["", "relative", "/no/such/folder"])
def test_a_runtime_folder_that_is_not_there_is_not_used(
    value: str, arguments: ServerArguments, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)

    assert arguments.entry.folder.parent == state_home / "midtoken"


def test_a_user_without_a_home_folder_is_told_what_to_do(
    arguments: ServerArguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31)  # a user that the system does not know

    with pytest.raises(LaunchError, match="this user has no home folder: set HOME"):
        _ = arguments.entry
