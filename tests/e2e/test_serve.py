"""`midtoken serve` and the processes behind it: they start, are watched, are shared and leave nothing behind."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from inference.errors import LaunchError
from inference.protocol.characters import Ask, CharacterRequest
from inference.serving.character_client import CharacterClient
from inference.serving.completion_client import CompletionClient
from inference.serving.shared_server import lease_server
from tests.support.servers import (
    RunningServer,
    find_abandoned_regions,
    find_processes,
    find_stubs,
    make_scripted,
    run_server,
    wait_until,
)

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_leaves_no_process_and_no_shared_memory(tmp_path: Path, number: signal.Signals) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state") as server:
        server.process.send_signal(number)
        server.process.wait(30)
        wait_until(lambda: not find_processes(tmp_path))
    assert find_abandoned_regions() == []


def test_a_clean_end_finishes_the_model(tmp_path: Path) -> None:
    served = make_scripted(tmp_path)
    with run_server(served, tmp_path / "state"):
        pass
    assert (served.model_dir / "events.txt").read_text() == "closed\n"


@pytest.mark.parametrize("model", ["completion", "characters"])
async def test_a_killed_stub_is_noticed_and_the_server_restarted(tmp_path: Path, model: str) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", "--probe-interval=0.5") as server:
        killed = set(find_stubs(tmp_path))
        os.kill(_find_stub(tmp_path, model), signal.SIGKILL)
        wait_until(lambda: len(set(find_stubs(tmp_path)) - killed) == len(killed))
        wait_until(lambda: _is_back(server))
        client = CompletionClient(server.endpoint.grpc_url)
        await client.probe()
        await client.close()


def _find_stub(folder: Path, model: str) -> int:
    commands = find_processes(folder)
    (found,) = (pid for pid in find_stubs(folder) if f"/{model}/1/model.py" in commands[pid])
    return found


def _is_back(server: RunningServer) -> bool:
    try:
        return server.read_metric("midtoken_requests_total") > 0  # by then a first completion has come back
    except OSError:
        return False


async def test_a_character_model_that_is_busy_is_no_reason_to_restart(tmp_path: Path) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", "--probe-interval=0.1") as server:
        stubs = find_stubs(tmp_path)
        client = CharacterClient(server.endpoint.grpc_url)
        slow = CharacterRequest(b"a", b"slow", Ask.SURPRISAL)
        await asyncio.gather(*(client.ask(slow) for _ in range(4)))
        await client.close()
        assert find_stubs(tmp_path) == stubs


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
    wait_until(lambda: not entry.is_served() and not find_processes(tmp_path))


async def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    served = make_scripted(tmp_path)
    (served.repository / "completion" / "1" / "model.py").write_text("raise RuntimeError('no such model')")
    with pytest.raises(LaunchError, match="no such model"):
        await lease_server(served.entry(tmp_path / "state"), served.command(tmp_path / "state"), lambda _: None)


def test_a_port_in_use_is_named(scripted_server: RunningServer, tmp_path: Path) -> None:
    taken = scripted_server.endpoint
    command = scripted_server.served.command(tmp_path)
    command.remove("--free-ports")
    ports = (f"--http-port={taken.http_port}", f"--grpc-port={taken.grpc_port}", f"--metrics-port={taken.metrics_port}")
    result = subprocess.run([*command, *ports], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert f"port {taken.http_port} on 127.0.0.1 cannot be used: Address already in use" in result.stderr
