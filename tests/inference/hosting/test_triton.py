import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from inference.errors import LaunchError
from inference.hosting.triton import (
    TritonInstallation,
    build_command,
    find_installation,
    link_backend,
    to_shell_path,
)
from tests.support.servers import needs_triton

_INSTALLATION = TritonInstallation(Path("/bin/tritonserver"), Path("/backends"), shared_library_dirs=(Path("/libs"),))
_NAMES = ("a b", "a\nb", "$(touch pwned)", "a;b", "a'b", 'a"b', "a&b", "a\\b", "*", "~", "a\xa0b")


@needs_triton
def test_the_stub_is_its_users_and_that_of_the_installation(tmp_path: Path) -> None:
    installation = find_installation(None)
    backends_dir = link_backend(installation, tmp_path)
    stub = backends_dir / "python" / "triton_python_backend_stub"
    assert not stub.is_symlink()  # a test that changes it must not change the installation, which may be another user's
    content, status = stub.read_bytes(), stub.stat()
    assert (status.st_uid, status.st_mode & 0o777) == (os.getuid(), 0o700)
    stub.write_bytes(b"old")
    stub.chmod(0o100)  # as the backend does
    assert link_backend(installation, tmp_path) == backends_dir
    assert stub.read_bytes() == content


@needs_triton
def test_a_copy_that_fails_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    installation = find_installation(None)
    backend_dir = link_backend(installation, tmp_path) / "python"
    (backend_dir / "triton_python_backend_stub").unlink()
    kept = set(backend_dir.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            link_backend(installation, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert set(backend_dir.iterdir()) == kept


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "tritonserver"
    path.parent.mkdir()
    path.touch(0o755)
    return path


def test_a_given_binary_uses_its_own_backends(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "backends" / "python").mkdir(parents=True)
    assert link_backend(find_installation(binary), tmp_path) == tmp_path / "backends"


def test_what_is_no_program_or_has_no_python_backend_is_refused(binary: Path, tmp_path: Path) -> None:
    for path, reason in ((binary, "has no Python backend"), (tmp_path, "is not an executable file")):
        with pytest.raises(LaunchError, match=f"{path} {reason}"):
            find_installation(path)


def test_the_header_that_opens_closed_apis_cannot_be_sent() -> None:
    command = build_command(_INSTALLATION, Path("/repository"), (8001, 8000))
    closed = [argument for argument in command if "restricted" in argument]
    names = [argument.rpartition(":")[2].partition("=")[0] for argument in closed]
    assert len(names) == 2
    assert all("\n" in name for name in names)


def test_its_http_is_closed_unless_a_port_is_named() -> None:
    closed, opened = (build_command(_INSTALLATION, Path("/r"), (8001, port)) for port in (None, 8000))
    assert "--allow-http=false" in closed
    assert {"--http-port=8000", "--http-address=127.0.0.1"} <= set(opened)


@pytest.mark.parametrize("name", _NAMES)
def test_a_shell_reads_any_path_as_one_word(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "file").touch()

    path = to_shell_path(tmp_path / name, tmp_path, "link")

    subprocess.run(["bash", "-c", f"cat {path}/file"], cwd=tmp_path, check=True)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", ["models", "modèle", "a-b_c.d", "模型"])
def test_a_path_that_is_one_word_is_not_changed(name: str, tmp_path: Path) -> None:
    assert to_shell_path(tmp_path / name, tmp_path, "link") == tmp_path / name
    assert not (tmp_path / "link").is_symlink()


def test_a_link_from_another_run_is_replaced(tmp_path: Path) -> None:
    to_shell_path(tmp_path / "old place", tmp_path, "link")

    to_shell_path(tmp_path / "new place", tmp_path, "link")

    assert (tmp_path / "link").readlink() == tmp_path / "new place"


@pytest.mark.parametrize(
    ("name", "obstacle"),
    [("pytriton", "tritonserver is not installed"), ("numpy", "needs NumPy below 2, and NumPy 2.5.1 is")],
)
@needs_triton
def test_what_keeps_the_bundled_server_from_running_is_named(
    name: str, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "pytriton":
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("inference.hosting.triton.version", lambda _: "2.5.1")
    with pytest.raises(LaunchError, match=obstacle):
        find_installation(None)
