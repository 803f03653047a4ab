"""`midtoken serve` and its processes: start, supervision, sharing, and an end that leaves nothing behind."""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from inference.errors import LaunchError, ServerError
from inference.protocol.completion import CompletionRequest
from inference.serving.client import Client
from inference.serving.shared_server import lease_server
from midtoken.installed import find_default_model, find_model_repository
from tests.support.lsp_editor import Script, StartEditor, wait_for
from tests.support.servers import (
    EMBEDDED,
    TRITON,
    RunningServer,
    Served,
    end_servers,
    find_ports,
    find_processes,
    make_scripted,
    pick_free_endpoint,
    run_server,
    wait_until,
)

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
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


def test_without_triton_a_signal_closes_the_model_and_no_socket_remains(tmp_path: Path) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", runtime=EMBEDDED) as server:
        assert len(server.find_processes()) == 2  # the one with the models, and its parent
        assert len(_find_sockets(server)) == 1
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 0
    assert server.events == ["closed"]
    assert _find_sockets(server) == []


@pytest.mark.parametrize("runtime", [TRITON, EMBEDDED])
async def test_the_server_is_restarted_when_a_model_hangs(tmp_path: Path, runtime: str) -> None:
    served, timing = make_scripted(tmp_path), ("--probe-interval=0.2", "--max-stall=3")
    with run_server(served, tmp_path / "state", *timing, runtime=runtime) as server:
        async with Client(server.url) as client:
            assert "".join([chunk.text async for chunk in client.stream(CompletionRequest("hang"))]) == "gnah"
        wait_until(lambda: "the model completion has made no progress for" in server.log)
        await _wait_for_a_completion(server)


def test_without_triton_a_process_in_which_nothing_runs_is_replaced(tmp_path: Path) -> None:
    served = make_scripted(tmp_path)
    engine = served.repository / "completion" / "1" / "fakes.py"
    held = "import re; re.match('(a*)*b', 'a' * 40)"  # takes years, and lets no other thread run
    engine.write_text(engine.read_text().replace("self._hangs_since = time.monotonic()", held))
    with run_server(served, tmp_path / "state", "--max-stall=3", runtime=EMBEDDED) as server:
        asyncio.run(_send(server, CompletionRequest("hang")))
        wait_until(lambda: "Timeout (0:00:03)!" in server.log)
        asyncio.run(_wait_for_a_completion(server))


def test_without_triton_a_crash_costs_no_port_and_the_server_is_back(tmp_path: Path) -> None:
    """A client that connects meanwhile is answered, and the socket of the editors stays the same."""
    with run_server(make_scripted(tmp_path), tmp_path / "state", "--openai=0", runtime=EMBEDDED) as server:
        for number in (signal.SIGKILL, signal.SIGSEGV):
            (child,) = server.find_processes().keys() - {server.process.pid}
            os.kill(child, number)
            with urllib.request.urlopen(f"{server.front_url}/v1/models", timeout=60) as answer:
                assert answer.status == 200
            assert f"the server has crashed with {number.name}; starting it again" in server.log
        asyncio.run(_wait_for_a_completion(server))


def test_without_triton_the_models_end_when_their_parent_was_killed(tmp_path: Path) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", runtime=EMBEDDED) as server:
        server.process.kill()
        wait_until(lambda: not server.find_processes())
    assert server.events == ["closed"]


async def _send(server: RunningServer, request: CompletionRequest) -> None:
    async with Client(server.url, idle_timeout_s=20) as client:
        with pytest.raises(ServerError):
            await anext(client.stream(request))


def _find_sockets(server: RunningServer) -> list[Path]:
    return [path for path in server.state_dir.rglob("*") if path.is_socket()]


async def test_the_server_is_restarted_at_once_after_a_stub_was_killed(tmp_path: Path) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", "--probe-interval=1000") as server:
        killed, commands = set(server.find_stubs()), server.find_processes()
        (stub,) = (pid for pid in killed if "/characters/1/model.py" in commands[pid])
        os.kill(stub, signal.SIGKILL)
        wait_until(lambda: len(set(server.find_stubs()) - killed) == len(killed))
        await _wait_for_a_completion(server)


async def _wait_for_a_completion(server: RunningServer) -> None:
    async with Client(server.url) as client, asyncio.timeout(60):
        while True:
            try:
                chunks = [chunk async for chunk in client.stream(CompletionRequest("abc"))]
                break
            except ServerError:
                await asyncio.sleep(0.05)
    assert "".join(chunk.text for chunk in chunks) == "cba"


def test_only_the_process_that_is_never_restarted_has_ports(scripted_server: RunningServer) -> None:
    ports = {int(each.partition("=")[2]) for each in scripted_server.endpoint.arguments}
    serve = {scripted_server.process.pid}
    assert find_ports(serve) == ports
    assert find_ports(scripted_server.find_processes().keys() - serve) == set()


async def test_two_servers_of_one_model_do_not_disturb_each_other(any_scripted_server: RunningServer) -> None:
    first = any_scripted_server
    arguments = pick_free_endpoint().arguments[0 if first.runtime == TRITON else 2 :]
    command = first.served.command(first.state_dir, first.runtime, *arguments)
    second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert second.stdout is not None
        assert any("Ctrl-C ends it" in line for line in second.stdout)  # it answers
        await _wait_for_a_completion(first)
    finally:
        second.terminate()
        second.communicate(timeout=60)
    assert second.returncode == 0
    await _wait_for_a_completion(first)


@pytest.mark.parametrize("runtime", [TRITON, EMBEDDED])
async def test_two_editors_share_a_server_that_ends_after_both_closed(tmp_path: Path, runtime: str) -> None:
    served, state_dir = make_scripted(tmp_path), tmp_path / "state"
    entry = served.entry(state_dir, runtime)
    command = served.command(state_dir, runtime, "--no-ports", "--until-idle=1")
    first = await lease_server(entry, command, lambda _: None)
    second = await lease_server(entry, command, lambda _: None)
    assert first.url == second.url
    assert find_ports(find_processes(tmp_path)) == set()
    first.close()
    async with Client(second.url) as client:
        await client.probe()
    second.close()
    wait_until(lambda: not entry.is_served() and not find_processes(tmp_path))


@pytest.mark.parametrize("runtime", [TRITON, EMBEDDED])
async def test_a_model_that_is_refused_is_refused_in_one_sentence(tmp_path: Path, runtime: str) -> None:
    served, state_dir = Served(tmp_path / "model", find_model_repository()), tmp_path / "state"
    shutil.copytree(find_default_model(), served.model_dir)
    (served.model_dir / "model.safetensors").write_text("{}")
    with pytest.raises(LaunchError) as caught:
        await lease_server(
            served.entry(state_dir, runtime), served.command(state_dir, runtime, "--no-ports"), lambda _: None
        )
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


_ASKED = "def make_node(value):\n    return valu"


async def test_an_editor_gets_ghost_text_without_triton_and_again_after_the_server_was_killed(
    start_editor: StartEditor, tmp_path: Path
) -> None:
    command = (sys.executable, "-m", "midtoken", "lsp", EMBEDDED, f"--state-dir={tmp_path}")
    editor = await start_editor(Script(command, tmp_path, tmp_path / "model.log"))
    editor.open(_ASKED)
    await wait_for(lambda: any("completion server ready" in text for text in editor.logged), 60)
    assert str((await editor.ghost(1, 15)).insert_text).startswith("value")
    killed = [pid for pid, line in find_processes(tmp_path).items() if "midtoken serve" in line]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(40):
        for number in itertools.count():
            editor.replace_all(f"{_ASKED[:-4]}{number} * valu")  # a text that was not answered before
            if await editor.ask(1, len(f"    return {number} * valu")):
                break
            await asyncio.sleep(0.5)
    assert not find_processes(tmp_path).keys() & set(killed)
    assert sum(path.is_socket() for path in tmp_path.rglob("*")) == 1  # that of the killed server was removed
    await editor.leave()
    end_servers(tmp_path)
