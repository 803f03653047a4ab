import asyncio
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.errors import LaunchError
from inference.serving.endpoint import Endpoint
from inference.serving.shared_server import Registration, ServerEntry, lease_server
from inference.serving.triton_installation import IMPORT_ROOT

_ENDPOINT = Endpoint(1, 2, 3)
_NO_COMMAND = ["false"]


@pytest.fixture
def entry(tmp_path: Path) -> ServerEntry:
    return ServerEntry.create(tmp_path, EngineConfig(Path("/models/a")))


async def _register(entry: ServerEntry) -> Registration:
    registration = await entry.register()
    assert registration is not None
    return registration


async def test_a_published_server_is_found(entry: ServerEntry) -> None:
    registration = await _register(entry)
    registration.publish(_ENDPOINT)
    assert entry.find() == _ENDPOINT
    registration.close()


async def test_a_closed_server_is_not_found(entry: ServerEntry) -> None:
    registration = await _register(entry)
    registration.publish(_ENDPOINT)
    registration.close()
    assert entry.find() is None


async def test_the_file_of_a_killed_server_is_ignored(entry: ServerEntry) -> None:
    (entry.folder / "server.json").write_text('{"http_port": 1, "grpc_port": 2, "metrics_port": 3}')
    assert entry.find() is None


async def test_only_one_process_serves_a_model(entry: ServerEntry) -> None:
    registration = await _register(entry)
    assert await entry.register() is None
    registration.close()


@pytest.mark.parametrize(
    "other", [EngineConfig(Path("/models/b")), EngineConfig(Path("/other/a")), EngineConfig(Path("/models/a"), "cuda")]
)
def test_another_model_or_device_has_another_entry(entry: ServerEntry, other: EngineConfig) -> None:
    assert ServerEntry.create(entry.folder.parent, other) != entry


@pytest.mark.parametrize("character", ["a", "é", "模"])
def test_a_model_folder_may_have_the_longest_name_that_there_is(character: str, tmp_path: Path) -> None:
    name = character * (255 // len(character.encode()))
    first, second = (ServerEntry.create(tmp_path, EngineConfig(Path(place, name))) for place in ("/one", "/other"))
    assert first.folder.is_dir()
    assert first.folder != second.folder


def test_an_entry_is_accessible_to_its_owner_only(entry: ServerEntry) -> None:
    assert entry.folder.stat().st_mode & 0o777 == 0o700


async def test_clients_share_the_running_server(entry: ServerEntry) -> None:
    registration = await _register(entry)
    registration.publish(_ENDPOINT)
    leases = [await lease_server(entry, _NO_COMMAND, lambda _: None) for _ in range(2)]
    assert [lease.endpoint for lease in leases] == [_ENDPOINT, _ENDPOINT]
    for lease in leases:
        lease.close()
    registration.close()


async def test_a_client_waits_for_a_starting_server(entry: ServerEntry) -> None:
    registration = await _register(entry)
    waiting = asyncio.create_task(lease_server(entry, _NO_COMMAND, lambda _: None))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    registration.publish(_ENDPOINT)
    (await waiting).close()
    registration.close()


async def test_a_server_is_withdrawn_after_its_last_client_closes(entry: ServerEntry) -> None:
    registration = await _register(entry)
    registration.publish(_ENDPOINT)
    lease = await lease_server(entry, _NO_COMMAND, lambda _: None)
    idle = asyncio.create_task(registration.withdraw_when_idle(0.1))
    await asyncio.sleep(0.5)
    assert not idle.done()
    lease.close()
    await idle
    assert entry.find() is None
    registration.close()


async def test_a_failed_start_raises_the_end_of_the_log(entry: ServerEntry) -> None:
    with pytest.raises(LaunchError, match="no room"):
        await lease_server(entry, ["sh", "-c", "echo no room; exit 1"], lambda _: None)


async def test_a_server_that_ends_and_cannot_log_is_one_sentence(entry: ServerEntry) -> None:
    with pytest.raises(LaunchError, match=r"^the server ended while starting, and its log is empty, as on a full disk"):
        await lease_server(entry, _NO_COMMAND, lambda _: None)


async def test_a_server_that_ends_with_an_error_of_ours_says_only_that(entry: ServerEntry) -> None:
    script = "echo loading; echo 'midtoken: no room'; echo 'try later'; exit 1"
    with pytest.raises(LaunchError, match=r"^no room\ntry later$"):
        await lease_server(entry, ["sh", "-c", script], lambda _: None)


@pytest.mark.parametrize("text", ["", '{"http_port": 1, "grpc', "[1, 2, 3]", '{"http_port": 1}', "\udcff"])
async def test_an_incomplete_address_file_is_ignored(entry: ServerEntry, text: str) -> None:
    registration = await _register(entry)
    (entry.folder / "server.json").write_text(text, errors="surrogateescape")
    assert entry.find() is None
    registration.close()


async def test_an_address_file_that_cannot_be_written_is_a_launch_error(entry: ServerEntry) -> None:
    registration = await _register(entry)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # makes writes fail, as on a full disk
    try:
        with pytest.raises(LaunchError, match=r"cannot write .*server\.json, where clients .*: File too large"):
            registration.publish(_ENDPOINT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    registration.close()


async def test_a_missing_program_is_a_launch_error(entry: ServerEntry) -> None:
    with pytest.raises(LaunchError, match=r"cannot run /no/such/program with a log in .*: No such file"):
        await lease_server(entry, ["/no/such/program"], lambda _: None)


# A server for `lease_server` to start. It registers, publishes an address and runs until the file `end` exists.
_SERVER = """
import asyncio, sys
from pathlib import Path
from inference.serving.endpoint import Endpoint
from inference.serving.shared_server import ServerEntry

async def main():
    entry = ServerEntry(Path(sys.argv[1]))
    registration = await entry.register()
    registration.publish(Endpoint(1, 2, 3))
    while not (entry.folder / "end").exists():
        await asyncio.sleep(0.05)
    registration.close()

asyncio.run(main())
"""

# A client that starts that server and closes its event loop. It ends when its standard input is closed.
_STARTER = """
import asyncio, gc, sys
from pathlib import Path
from inference.serving.shared_server import ServerEntry, lease_server

if sys.version_info < (3, 12):  # the child watcher of later versions
    asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
command = [sys.executable, "-c", sys.argv[2], sys.argv[1]]
asyncio.run(lease_server(ServerEntry(Path(sys.argv[1])), command, lambda _: None))
gc.collect()
print("started", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [None, signal.SIGKILL])
def test_a_server_outlives_the_process_that_started_it(entry: ServerEntry, number: signal.Signals | None) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTER, str(entry.folder), _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=IMPORT_ROOT,
    )
    try:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "started\n"
        if number is not None:
            starter.send_signal(number)
        starter.communicate()
        time.sleep(0.5)  # a server that was killed would need a moment to end
        assert entry.find() == _ENDPOINT
    finally:
        (entry.folder / "end").touch()
        _wait_until(lambda: not entry.is_served())


async def test_an_ended_server_leaves_no_zombie_in_the_process_that_started_it(entry: ServerEntry) -> None:
    (await lease_server(entry, [sys.executable, "-c", _SERVER, str(entry.folder)], lambda _: None)).close()
    assert _find_children(entry.folder) != []
    (entry.folder / "end").touch()
    _wait_until(lambda: _find_children(entry.folder) == [])  # it has ended: a zombie has no command line
    _wait_until(lambda: _find_zombies() == [])


def _find_children(folder: Path) -> list[Path]:
    """The children of this process whose command line contains the folder."""
    return [each for each in _find_all_children() if str(folder) in (each / "cmdline").read_text()]


def _find_zombies() -> list[Path]:
    """The zombies among the children of this process."""
    return [each for each in _find_all_children() if "\nState:\tZ" in (each / "status").read_text()]


def _find_all_children() -> list[Path]:
    pids = Path("/proc/self/task").glob("*/children")
    return [
        Path("/proc", pid) for children in pids for pid in children.read_text().split() if Path("/proc", pid).exists()
    ]


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
