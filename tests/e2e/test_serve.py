"""`midtoken serve` and the processes behind it: they start, are watched, are shared and leave nothing behind."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from inference.client import CompletionClient
from inference.errors import LaunchError
from inference.shared_server import lease_server
from tests.servers import RunningServer, find_traces, make_scripted, run_server, wait_until

pytestmark = pytest.mark.e2e


def _find_shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))


def _find_stub(state_dir: Path) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        command = (process / "cmdline").read_bytes() if process.exists() else b""
        if command.startswith(str(state_dir).encode()):
            return int(process.name)
    raise AssertionError("no stub runs")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_leaves_no_process_and_no_shared_memory(tmp_path: Path, number: signal.Signals) -> None:
    before = _find_shared_memory()
    with run_server(make_scripted(tmp_path), tmp_path / "state") as server:
        server.process.send_signal(number)
        server.process.wait(30)
        wait_until(lambda: not find_traces(tmp_path))
    assert _find_shared_memory() <= before


def test_a_clean_end_finishes_the_model(tmp_path: Path) -> None:
    served = make_scripted(tmp_path)
    with run_server(served, tmp_path / "state"):
        pass
    assert (served.model_dir / "events.txt").read_text() == "closed\n"


async def test_a_killed_stub_is_noticed_and_the_server_restarted(tmp_path: Path) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", "--probe-interval=0.5") as server:
        stub = _find_stub(tmp_path / "state")
        os.kill(stub, signal.SIGKILL)
        wait_until(lambda: _has_other_stub(tmp_path / "state", stub))
        await _wait_until_it_answers(server)


def _has_other_stub(state_dir: Path, stub: int) -> bool:
    try:
        return _find_stub(state_dir) != stub
    except AssertionError:
        return False


async def _wait_until_it_answers(server: RunningServer) -> None:
    client = CompletionClient(server.endpoint.grpc_url)

    def is_listening() -> bool:
        return server.read_metric("midtoken_requests_total") > 0

    wait_until(lambda: _succeeds(is_listening))
    await client.probe()
    await client.close()


def _succeeds(condition) -> bool:  # type: ignore[no-untyped-def]
    try:
        return bool(condition())
    except OSError:
        return False


async def test_two_editors_share_one_server_that_ends_when_both_have_gone(tmp_path: Path) -> None:
    served = make_scripted(tmp_path)
    entry, command = served.entry(tmp_path / "state"), served.command(tmp_path / "state", "--until-idle=1")
    first = await lease_server(entry, command, lambda _: None)
    second = await lease_server(entry, command, lambda _: None)
    assert first.endpoint == second.endpoint
    first.close()
    client = CompletionClient(second.endpoint.grpc_url)
    await client.probe()
    await client.close()
    second.close()
    wait_until(lambda: not entry.is_served() and not find_traces(tmp_path / "state"))


async def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    served = make_scripted(tmp_path)
    (served.repository / "completion" / "1" / "model.py").write_text("raise RuntimeError('no such model')")
    with pytest.raises(LaunchError, match="no such model"):
        await lease_server(served.entry(tmp_path / "state"), served.command(tmp_path / "state"), lambda _: None)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state") as server:
        command = [argument for argument in server.process.args if argument != "--free-ports"]
        ports = [f"--{name}-port={server.endpoint.http_port}" for name in ("http", "grpc", "metrics")]
        result = subprocess.run([*command, *ports], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert f"port {server.endpoint.http_port} on 127.0.0.1 cannot be used: Address already in use" in result.stderr
