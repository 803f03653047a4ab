import os
import resource
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


def test_the_stub_belongs_to_the_user_who_runs_it(tmp_path: Path) -> None:
    stub = _make_stub(tmp_path)
    assert stub.stat().st_uid == os.getuid()
    assert stub.stat().st_mode & 0o777 == 0o700


def test_a_stub_that_the_backend_has_made_unreadable_is_used_again(tmp_path: Path) -> None:
    stub = _make_stub(tmp_path)
    stub.chmod(0o100)
    used = stub.stat().st_ino
    link_bundled_installation(tmp_path)
    assert stub.stat().st_ino == used


def test_a_stub_of_another_version_is_replaced(tmp_path: Path) -> None:
    stub = _make_stub(tmp_path)
    content = stub.read_bytes()
    stub.write_bytes(b"old")
    link_bundled_installation(tmp_path)
    assert stub.read_bytes() == content


def test_a_copy_that_fails_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    backend_dir = link_bundled_installation(tmp_path).backends_dir / "python"
    (backend_dir / "triton_python_backend_stub").unlink()
    kept = set(backend_dir.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            link_bundled_installation(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert set(backend_dir.iterdir()) == kept


def _make_stub(links_dir: Path) -> Path:
    stub = link_bundled_installation(links_dir).backends_dir / "python" / "triton_python_backend_stub"
    assert not stub.is_symlink()  # a test that changes it must not change the installation, which may be another user's
    return stub


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
