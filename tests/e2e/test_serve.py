"""`midtoken serve` and its processes: start, supervision, sharing, and an end that leaves nothing behind."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from inference.errors import LaunchError, ServerError
from inference.protocol.characters import Ask, CharacterRequest
from inference.protocol.completion import CompletionRequest
from inference.serving.client import Client
from inference.serving.shared_server import lease_server
from tests.support.servers import (
    RunningServer,
    find_free_endpoint,
    find_ports,
    find_processes,
    make_scripted,
    run_server,
    wait_until,
)

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_after_a_signal_the_model_is_closed_and_no_process_or_shared_memory_remains(
    own_server: RunningServer, number: signal.Signals
) -> None:
    regions = own_server.find_regions()
    assert len(regions) == len(own_server.find_stubs()) == 2
    assert len(_find_sockets(own_server)) == 3

    own_server.process.send_signal(number)
    own_server.process.wait(30)

    wait_until(lambda: not own_server.find_processes())
    assert own_server.events == ["closed"]
    assert [path for path in [*regions, *_find_sockets(own_server)] if path.exists()] == []


def _find_sockets(server: RunningServer) -> list[Path]:
    return [path for path in server.state_dir.rglob("*") if path.is_socket()]


@pytest.mark.parametrize("model", ["completion", "characters"])
async def test_the_server_is_restarted_after_a_stub_was_killed(tmp_path: Path, model: str) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", "--probe-interval=0.5") as server:
        killed = set(server.find_stubs())
        os.kill(_find_stub(server, model), signal.SIGKILL)
        wait_until(lambda: len(set(server.find_stubs()) - killed) == len(killed))
        await _wait_for_a_completion(server)


def _find_stub(server: RunningServer, model: str) -> int:
    commands = server.find_processes()
    (found,) = (pid for pid in server.find_stubs() if f"/{model}/1/model.py" in commands[pid])
    return found


async def _wait_for_a_completion(server: RunningServer) -> None:
    async with Client(server.endpoint.grpc_url) as client, asyncio.timeout(60):
        while True:
            try:
                chunks = [chunk async for chunk in client.stream(CompletionRequest("abc"))]
                break
            except ServerError:
                await asyncio.sleep(0.05)
    assert "".join(chunk.text for chunk in chunks) == "cba"


async def test_folders_may_have_names_that_a_shell_would_take_apart(tmp_path: Path) -> None:
    folder = tmp_path / "my (own) folder"
    with run_server(make_scripted(folder), folder / "state") as server:
        await _wait_for_a_completion(server)


def test_only_the_process_that_is_never_restarted_has_ports(own_server: RunningServer) -> None:
    ports = {int(each.partition("=")[2]) for each in own_server.endpoint.arguments}
    serve = {own_server.process.pid}
    assert find_ports(serve) == ports
    assert find_ports(own_server.find_processes().keys() - serve) == set()


async def test_two_servers_of_one_model_do_not_disturb_each_other(own_server: RunningServer) -> None:
    arguments = find_free_endpoint().arguments
    command = own_server.served.command(own_server.state_dir, *arguments)
    second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert second.stdout is not None
        assert any("curl" in line for line in second.stdout)  # it answers
        await _wait_for_a_completion(own_server)
    finally:
        second.terminate()
        second.communicate(timeout=60)
    assert second.returncode == 0
    await _wait_for_a_completion(own_server)


async def test_a_busy_character_model_causes_no_restart(tmp_path: Path) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", "--probe-interval=0.1") as server:
        stubs = server.find_stubs()
        slow = CharacterRequest(b"a", b"slow", Ask.SURPRISAL)
        async with Client(server.endpoint.grpc_url) as client:
            await asyncio.gather(*(client.ask(slow) for _ in range(4)))
        assert server.find_stubs() == stubs


async def test_two_editors_share_a_server_that_ends_after_both_closed(tmp_path: Path) -> None:
    served = make_scripted(tmp_path)
    entry, command = (
        served.entry(tmp_path / "state"),
        served.command(tmp_path / "state", "--no-ports", "--until-idle=1"),
    )
    first = await lease_server(entry, command, lambda _: None)
    second = await lease_server(entry, command, lambda _: None)
    assert first.url == second.url
    assert find_ports(find_processes(tmp_path)) == set()
    first.close()
    async with Client(second.url) as client:
        await client.probe()
    second.close()
    wait_until(lambda: not entry.is_served() and not find_processes(tmp_path))


async def test_a_failed_start_says_why(tmp_path: Path) -> None:
    served = make_scripted(tmp_path)
    (served.repository / "completion" / "1" / "model.py").write_text("raise RuntimeError('no such model')")
    with pytest.raises(LaunchError, match="no such model"):
        await lease_server(
            served.entry(tmp_path / "state"), served.command(tmp_path / "state", "--no-ports"), lambda _: None
        )
