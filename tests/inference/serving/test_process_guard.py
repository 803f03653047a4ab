import os
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.serving import process_guard
from tests.support.servers import wait_until

# A stand-in for tritonserver. It starts a child, as tritonserver starts stubs, and reports a SIGTERM.
_SERVER = """
trap 'echo drained; exit 0' TERM
sleep 60 & echo $!
while true; do sleep 0.05; done
"""


@pytest.fixture
def running() -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", process_guard.__file__, "5", "none-", "bash", "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.communicate()


def _read_child(running: "subprocess.Popen[str]") -> Path:
    assert running.stdout is not None
    return Path("/proc", running.stdout.readline().strip())


def _runs(process: Path) -> bool:
    return process.exists() and "\nState:\tZ" not in (process / "status").read_text()


@pytest.mark.parametrize(("sent", "said"), [(None, "drained\n"), ("k", "")], ids=["closed", "a byte"])
def test_closing_the_pipe_drains_the_server_a_byte_kills_it_and_both_end_its_children(
    running: "subprocess.Popen[str]", sent: str | None, said: str
) -> None:
    child = _read_child(running)
    assert running.communicate(sent)[0] == said
    wait_until(lambda: not _runs(child))


def test_the_server_may_open_more_files_than_usual() -> None:
    guard = shlex.join([sys.executable, "-I", "-S", process_guard.__file__, "5", "none-", "bash", "-c", "ulimit -n"])
    command, most = ["bash", "-c", f"ulimit -Sn 100; exec {guard}"], resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == min(most, 2**16) > 100


def test_a_server_that_crashes_leaves_no_children(running: "subprocess.Popen[str]") -> None:
    child = _read_child(running)
    server = int((child / "stat").read_text().split()[3])
    os.kill(server, signal.SIGKILL)
    running.wait(30)
    wait_until(lambda: not _runs(child))


def test_a_server_whose_guard_was_killed_is_killed_before_the_next_one_starts() -> None:
    """Its end would remove the sockets of the next one."""
    command = ["bash", "-c", "trap '' TERM; echo $$; while true; do sleep 0.05; done"]
    guard = [sys.executable, "-I", "-S", process_guard.__file__, "5", "none-"]
    with subprocess.Popen([*guard, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        server = _read_child(first)
        first.kill()
        first.wait(30)
        assert _runs(server)
        with subprocess.Popen([*guard, "true"], stdin=subprocess.PIPE) as second:
            second.wait(30)
        assert not _runs(server)


def test_shared_memory_of_a_killed_guard_is_removed_by_the_next_one() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    prefix = process_guard._region_prefix()
    stale, own = Path("/dev/shm", f"{prefix}{ended.pid}_x"), Path("/dev/shm", f"{prefix}{os.getpid()}_x")
    stale.touch()
    own.touch()
    process_guard._remove_stale_regions()
    assert (stale.exists(), own.exists()) == (False, True)
    own.unlink()


def test_the_server_cannot_give_other_users_access_to_its_files(tmp_path: Path) -> None:
    file = tmp_path / "region"
    create = f"""
import os
file = os.open({str(file)!r}, os.O_CREAT | os.O_RDWR, 0o644)
try:
    os.fchmod(file, 0o644)
except PermissionError:
    os.fchmod(file, 0o700)  # what stays within the owner is allowed
"""
    guard = [sys.executable, "-I", "-S", process_guard.__file__, "5", "none-", sys.executable, "-c", create]
    with subprocess.Popen(guard, stdin=subprocess.PIPE) as process:
        process.wait(30)
    assert file.stat().st_mode & 0o777 == 0o700
