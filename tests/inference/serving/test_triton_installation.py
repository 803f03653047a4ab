from pathlib import Path

import pytest

from inference.errors import LaunchError
from inference.serving.triton_installation import find_installation, link_bundled_installation


def test_bundled_backend_and_the_stub_of_this_interpreter_are_in_one_folder(tmp_path: Path) -> None:
    installation = link_bundled_installation(tmp_path)
    names = {path.name for path in (installation.backends_dir / "python").iterdir()}
    assert {"libtriton_python.so", "triton_python_backend_utils.py", "triton_python_backend_stub"} <= names


def test_linking_twice_gives_the_same_installation(tmp_path: Path) -> None:
    assert link_bundled_installation(tmp_path) == link_bundled_installation(tmp_path)


def test_a_given_binary_uses_its_own_backends(tmp_path: Path) -> None:
    binary = tmp_path / "bin" / "tritonserver"
    binary.parent.mkdir()
    binary.touch(0o755)
    (tmp_path / "backends" / "python").mkdir(parents=True)
    assert find_installation(binary).backends_dir == tmp_path / "backends"


def test_a_binary_without_the_python_backend_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "bin" / "tritonserver"
    binary.parent.mkdir()
    binary.touch(0o755)
    with pytest.raises(LaunchError, match="has no Python backend"):
        find_installation(binary)


def test_a_path_that_is_not_executable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="is not an executable file"):
        find_installation(tmp_path)
