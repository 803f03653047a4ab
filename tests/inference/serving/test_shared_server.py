import asyncio
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.errors import LaunchError
from inference.serving.shared_server import Registration, ServerEntry, ServerLease, lease_server
from inference.serving.triton_installation import IMPORT_ROOT
from tests.support.servers import find_processes, wait_until

_URL = "unix:/a folder \udcff/grpc"


@pytest.fixture
def entry(tmp_path: Path) -> ServerEntry:
    return ServerEntry.create(tmp_path, EngineConfig(Path("/models/a")), is_embedded=False)


@pytest.fixture
async def registration(entry: ServerEntry) -> AsyncIterator[Registration]:
    registration = await entry.register()
    assert registration is not None
    yield registration
    registration.close()


async def _lease(entry: ServerEntry, *command: str) -> ServerLease:
    return await lease_server(entry, command or ["false"], print)


async def test_a_server_is_found_while_it_is_registered_and_no_other_process_serves_the_model(
    entry: ServerEntry, registration: Registration
) -> None:
    path = entry.folder / "server.url"
    path.touch()  # as after a crash of the machine
    assert (entry.find(), await entry.register(), entry.folder.stat().st_mode & 0o777) == (None, None, 0o700)
    registration.publish(_URL)
    assert entry.find() == _URL
    registration.close()
    path.write_bytes(os.fsencode(_URL))  # as a killed server leaves it
    assert entry.find() is None


@pytest.mark.parametrize(
    "other",
    [
        EngineConfig(Path("/models/b")),
        EngineConfig(Path("/other/a")),
        EngineConfig(Path("/models/a"), "cuda"),
        EngineConfig(Path("/models/a"), engine_key="k"),
    ],
)
def test_another_model_device_or_key_has_another_entry(entry: ServerEntry, other: EngineConfig) -> None:
    assert ServerEntry.create(entry.folder.parent, other, is_embedded=False) != entry


async def test_after_an_upgrade_editors_get_another_server_and_the_old_one_ends_with_its_last_client(
    tmp_path: Path,
) -> None:
    code = tmp_path / "inference" / "engine" / "engine.py"
    code.parent.mkdir(parents=True)
    code.touch()
    create = partial(ServerEntry.create, tmp_path, EngineConfig(Path("/models/a")), is_embedded=False, root=tmp_path)
    old = create()
    registration = await old.register()
    assert registration is not None
    registration.publish(_URL)
    lease = await _lease(old)
    ending = asyncio.create_task(registration.withdraw_when_idle(1000, tmp_path))
    await asyncio.sleep(0.1)
    (code.parent / "__pycache__").mkdir()
    assert create() == old

    code.write_text("new")

    assert create() != old
    await asyncio.sleep(1.5)
    assert not ending.done()
    lease.close()
    await ending
    registration.close()
    shutil.rmtree(code.parent)  # as an installation that was removed
    assert create() != old


@pytest.mark.parametrize("character", ["a", "é", "模"])
def test_a_model_folder_may_have_the_longest_name_that_there_is(character: str, tmp_path: Path) -> None:
    name = character * (255 // len(character.encode()))
    first, second = (
        ServerEntry.create(tmp_path, EngineConfig(Path(place, name)), is_embedded=False) for place in ("/one", "/other")
    )
    assert first.folder.is_dir()
    assert first.folder != second.folder


async def test_a_client_waits_for_a_starting_server(entry: ServerEntry, registration: Registration) -> None:
    waiting = asyncio.create_task(_lease(entry))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    registration.publish(_URL)
    (await waiting).close()


async def test_clients_share_a_server_that_is_withdrawn_after_the_last_one_closes(
    entry: ServerEntry, registration: Registration
) -> None:
    registration.publish(_URL)
    first, last = await _lease(entry), await _lease(entry)
    first.close()
    idle = asyncio.create_task(registration.withdraw_when_idle(0.1))
    await asyncio.sleep(0.5)
    assert (first.url, last.url, idle.done()) == (_URL, _URL, False)
    last.close()
    await idle
    assert entry.find() is None


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("sh", "-c", "echo no room; exit 1"), "^the server ended while starting: no room. Its log is /"),
        (("false",), "^the server ended while starting, and its log is empty, as on a full disk"),
        (
            ("sh", "-c", "echo loading; echo 'midtoken: no room'; echo 'try later'; exit 1"),
            "^no room try later$",
        ),
        (("/no/such/program",), r"cannot run /no/such/program with a log in .*: No such file"),
    ],
)
async def test_a_failed_start_says_why(entry: ServerEntry, command: Sequence[str], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        await _lease(entry, *command)


async def test_an_address_file_that_cannot_be_written_is_a_launch_error(registration: Registration) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # makes writes fail, as on a full disk
    try:
        with pytest.raises(LaunchError, match=r"cannot write .*server\.url, where clients .*: File too large"):
            registration.publish(_URL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# A server for `lease_server` to start. It registers, publishes an address and runs until the file `end` exists.
_SERVER = """
import asyncio, sys
from pathlib import Path
from inference.serving.shared_server import ServerEntry

async def main():
    entry = ServerEntry(Path(sys.argv[1]))
    registration = await entry.register()
    registration.publish("unix:/grpc")
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
        assert entry.find() == "unix:/grpc"
    finally:
        (entry.folder / "end").touch()
        wait_until(lambda: not entry.is_served())


async def test_an_ended_server_leaves_no_zombie_in_the_process_that_started_it(entry: ServerEntry) -> None:
    (await _lease(entry, sys.executable, "-c", _SERVER, str(entry.folder))).close()
    assert find_processes(entry.folder) != {}
    (entry.folder / "end").touch()
    wait_until(lambda: find_processes(entry.folder) == {})  # it has ended: a zombie has no command line
    wait_until(lambda: not _has_zombie())


def _has_zombie() -> bool:
    with contextlib.suppress(ChildProcessError):  # this process has no children
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return False
