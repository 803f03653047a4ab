import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.errors import LaunchError, ServerError, ServerUnreachableError
from inference.protocol.completion import CompletionRequest
from inference.serving.client import Client
from inference.serving.launcher import ServerOptions, TritonServer
from inference.serving.triton_installation import IMPORT_ROOT

_FAKE = f"exec {sys.executable} -m tests.support.fake_triton"


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    """Options that run tests/support/fake_triton.py instead of tritonserver."""
    (tmp_path / "backends" / "python").mkdir(parents=True)
    binary = tmp_path / "bin" / "tritonserver"
    binary.parent.mkdir()
    _write_program(binary, f'{_FAKE} "$@"')
    return ServerOptions(EngineConfig(tmp_path), tmp_path, tmp_path / "state", triton_binary=binary, max_stall_s=1.0)


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


async def _start(options: ServerOptions, **environment: str) -> TritonServer:
    return await TritonServer.start(options, {**os.environ, "PYTHONPATH": str(IMPORT_ROOT), **environment}, _ignore)


def _ignore(_line: str) -> None:
    pass


@pytest.fixture
async def server(options: ServerOptions) -> AsyncIterator[TritonServer]:
    server = await _start(options)
    yield server
    await server.stop(may_drain=False)


async def test_a_busy_server_passes_the_probe(server: TritonServer) -> None:
    async with Client(server.url) as client:
        waiting = asyncio.ensure_future(anext(client.stream(CompletionRequest("a"))))
        await asyncio.wait_for(server.probe(), 30)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_start_fails_if_a_model_makes_no_progress(options: ServerOptions) -> None:
    with pytest.raises(LaunchError, match="the model completion has made no progress for 2 s"):
        await _start(options, FAKE_HEARTBEAT_MS="2000")


async def test_a_model_with_slow_progress_passes_the_probe(options: ServerOptions) -> None:
    server = await _start(options, FAKE_HEARTBEAT_MS="900")
    await server.probe()
    await server.stop(may_drain=False)


async def test_a_server_that_has_ended_fails_the_probe(server: TritonServer) -> None:
    await server.stop(may_drain=False)
    with pytest.raises(ServerUnreachableError, match="tritonserver has ended; its log is"):
        await server.probe()


async def test_a_stopped_process_fails_the_probe(server: TritonServer) -> None:
    guard = server._process.pid
    (child,) = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    os.kill(int(child), signal.SIGSTOP)  # it still listens, but does not answer
    with pytest.raises(ServerError, match=r"the model completion at .* does not answer"):
        await server.probe()


@pytest.mark.e2e  # waits five seconds until the guard is killed
async def test_a_guard_that_hangs_does_not_keep_a_server_from_being_stopped(options: ServerOptions) -> None:
    server = await _start(options)
    os.kill(server._process.pid, signal.SIGSTOP)
    await asyncio.wait_for(server.stop(may_drain=False), 30)
    async with asyncio.timeout(30):
        while any(_names(each, str(options.model_repository)) for each in Path("/proc").glob("[0-9]*")):
            await asyncio.sleep(0.05)


@pytest.mark.usefixtures("server")
async def test_the_log_and_its_folder_are_readable_by_their_owner_only(options: ServerOptions) -> None:
    assert options.state_dir.stat().st_mode & 0o777 == 0o700
    assert options.log_path.stat().st_mode & 0o777 == 0o600


_REFUSED = r'''I1 pb_stub.cc:366] "Failed to initialize Python stub: ModelError: no \"mamba\"\n\nAt:\n  loader.py"'''


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'E: no such model'", r"could not start. The log is .*\.log; it says:\nE: no such model"),
        ("true", "^tritonserver could not start, and its log is empty, as on a full disk: "),
        (f"cat <<'END'\nE: other\n{_REFUSED}\nE: failed to load all models\nEND", '^no "mamba"$'),
    ],
)
async def test_a_failed_start_says_why(options: ServerOptions, script: str, message: str) -> None:
    assert options.triton_binary is not None
    _write_program(options.triton_binary, f"{script}\nexit 1")
    with pytest.raises(LaunchError, match=message):
        await _start(options)


async def test_a_server_that_does_not_answer_in_time_is_stopped(options: ServerOptions) -> None:
    assert options.triton_binary is not None
    _write_program(options.triton_binary, "exec sleep 60")
    slow = dataclasses.replace(options, start_timeout_s=1.0)
    with pytest.raises(LaunchError, match="did not answer within 1 s"):
        await _start(slow)
    assert not [each for each in Path("/proc").glob("[0-9]*") if _names(each, str(options.model_repository))]


def _names(process: Path, text: str) -> bool:
    try:
        return text in (process / "cmdline").read_text()
    except OSError:  # it has ended
        return False


async def test_a_log_that_cannot_be_written_is_a_launch_error(options: ServerOptions) -> None:
    options.log_path.parent.mkdir()
    options.log_path.mkdir()  # cannot be written, as on a full disk
    options.log_path.with_suffix(".log.1").touch()
    with pytest.raises(LaunchError, match=r"cannot start tritonserver with its files in .*: Not a directory"):
        await _start(options)
