import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from inference.config import EngineConfig
from inference.errors import LaunchError, ServerError, ServerUnreachableError
from inference.protocol.completion import CompletionRequest
from inference.serving.client import Client
from inference.serving.launcher import RestartPolicy, ServerOptions, TritonServer, keep_running
from inference.serving.triton_installation import IMPORT_ROOT
from tests.support.fakes import FakeServer
from tests.support.servers import find_processes, wait_until

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
    return await TritonServer.start(options, {**os.environ, "PYTHONPATH": str(IMPORT_ROOT), **environment}, print)


@pytest.fixture
async def server(options: ServerOptions) -> AsyncIterator[TritonServer]:
    server = await _start(options, FAKE_HEARTBEAT_MS="900")
    yield server
    await server.stop(may_drain=False)


async def test_a_busy_and_slow_server_passes_the_probe_and_its_log_is_its_owners(
    server: TritonServer, options: ServerOptions
) -> None:
    async with Client(server.url) as client:
        waiting = asyncio.ensure_future(anext(client.stream(CompletionRequest("a"))))
        await asyncio.wait_for(server.probe(), 30)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
    modes = [path.stat().st_mode & 0o777 for path in (options.state_dir, options.log_path)]
    assert modes == [0o700, 0o600]


async def test_start_fails_if_a_model_makes_no_progress(options: ServerOptions) -> None:
    with pytest.raises(LaunchError, match="the model completion has made no progress for 2 s"):
        await _start(options, FAKE_HEARTBEAT_MS="2000")


async def test_a_server_that_has_ended_and_a_stopped_process_fail_the_probe(server: TritonServer) -> None:
    guard = server._process.pid
    (child,) = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    os.kill(int(child), signal.SIGSTOP)  # it still listens, but does not answer
    with pytest.raises(ServerError, match=r"the model completion at .* does not answer"):
        await server.probe()
    await server.stop(may_drain=False)
    with pytest.raises(ServerUnreachableError, match="tritonserver has ended; its log is"):
        await server.probe()


@pytest.mark.e2e  # waits five seconds until the guard is killed
async def test_a_guard_that_hangs_does_not_keep_a_server_from_being_stopped(options: ServerOptions) -> None:
    server = await _start(options)
    os.kill(server._process.pid, signal.SIGSTOP)
    await asyncio.wait_for(server.stop(may_drain=False), 30)
    wait_until(lambda: not find_processes(options.model_repository))


_FULL = r"""E1 a.cc:2] "no shared memory key 'a': No space left on device"
E1 a.cc:2] "failed to load 'completion' version 1: no shared memory key 'a': No space left on device"
error: creating server: Internal - failed to load all models"""
_BROKEN = r"""E1129 00:48:17.185 11077 server.cc:241] "CudaDriverHelper has not been initialized."
E1129 00:48:17.208 11077 a.cc:6] "failed to load 'completion' version 1: ImportError: no x\n\nAt:\n  <frozen importlib>"
| completion | 1 | UNAVAILABLE: Internal: ImportError: no x |
error: creating server: Internal - failed to load all models"""
_REFUSED = r'''I1 pb_stub.cc:366] "Failed to initialize Python stub: ModelError: no \"mamba\"\n\nAt:\n  loader.py"'''


@pytest.mark.parametrize(
    ("script", "timeout_s", "message"),
    [
        ("echo 'E: no such model'; exit 1", 60.0, r"could not start: E: no such model. Its log is /.*\.log$"),
        (f"cat <<'END'\n{_FULL}\nEND\nexit 1", 60.0, "could not start: /dev/shm has too little room; if .* Its log"),
        (
            f"cat <<'END'\n{_BROKEN}\nEND\nexit 1",
            60.0,
            "start: failed to load .*: ImportError: no x. Its",
        ),
        ("exit 1", 60.0, "^tritonserver could not start, and its log is empty, as on a full disk: "),
        (f"cat <<'END'\nE: other\n{_REFUSED}\nE: failed to load all models\nEND\nexit 1", 60.0, '^no "mamba"$'),
        ("exec sleep 60", 1.0, "did not answer within 1 s"),
    ],
    ids=["error", "small memory", "broken model", "nothing", "refused model", "silence"],
)
async def test_a_failed_start_says_why_and_leaves_no_process(
    options: ServerOptions, script: str, timeout_s: float, message: str
) -> None:
    assert options.triton_binary is not None
    _write_program(options.triton_binary, script)
    with pytest.raises(LaunchError, match=message) as raised:
        await _start(dataclasses.replace(options, start_timeout_s=timeout_s))
    assert "\n" not in str(raised.value)
    assert find_processes(options.model_repository) == {}


async def test_a_log_that_cannot_be_written_is_a_launch_error(options: ServerOptions) -> None:
    options.log_path.parent.mkdir()
    options.log_path.mkdir()  # cannot be written, as on a full disk
    options.log_path.with_suffix(".log.1").touch()
    with pytest.raises(LaunchError, match=r"cannot start tritonserver with its files in .*: Not a directory"):
        await _start(options)


_POLICY = RestartPolicy(probe_interval_s=0.001, first_backoff_s=0.001, max_failed_starts=3)


async def _keep_running(*servers: FakeServer | LaunchError, policy: RestartPolicy = _POLICY) -> list[str]:
    """Watches the first server and restarts with the others, until the last is probed. Returns the reported lines."""
    first, *others = servers
    outcomes, said = iter(others), list[str]()

    async def restart() -> FakeServer:
        outcome = next(outcomes)
        if isinstance(outcome, LaunchError):
            raise outcome
        return outcome

    assert isinstance(first, FakeServer)
    task = asyncio.ensure_future(keep_running(first, restart, said.append, policy))
    if isinstance(servers[-1], FakeServer):
        await servers[-1].probed.wait()
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return said


@pytest.mark.parametrize("num_probes", [0, 2])
async def test_a_server_that_stops_answering_is_not_drained_and_replaced_by_one_that_is(num_probes: int) -> None:
    dead, fresh = FakeServer(num_probes), FakeServer()
    said = await _keep_running(dead, LaunchError("one"), LaunchError("two"), fresh)
    assert said == ["the server has failed: no completion; starting it again", "one", "two"]
    assert (dead.stops, fresh.stops) == ([False], [True])


async def test_an_ended_server_is_replaced_at_once() -> None:
    ended, fresh = FakeServer(), FakeServer()
    ended.ended.set()
    assert await _keep_running(ended, fresh) == ["the server has ended; starting it again"]


async def test_after_many_failed_starts_the_last_error_is_raised() -> None:
    with pytest.raises(LaunchError, match="three"):
        await _keep_running(FakeServer(num_probes=0), *map(LaunchError, ("one", "two", "three")))
