"""`midtoken serve`, and the host that editors share: start, sharing, and an end that leaves nothing behind."""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from inference.client.client import Client
from inference.client.local_host import ensure_served
from inference.config import EngineConfig
from inference.errors import ModelError
from inference.protocol.completion import CompletionRequest
from midtoken.installed import find_bundled_model, find_model_repository
from tests.support.lsp_editor import Script, StartEditor, wait_for
from tests.support.servers import (
    EMBEDDED,
    TRITON,
    RunningServer,
    Served,
    end_servers,
    find_processes,
    make_scripted,
    needs_triton,
    run_server,
    wait_until,
)

pytestmark = pytest.mark.e2e

_RUNTIMES = pytest.mark.parametrize("runtime", [pytest.param(TRITON, marks=needs_triton), EMBEDDED])


@_RUNTIMES
def test_after_a_signal_the_model_is_closed_and_no_process_socket_or_shared_memory_remains(
    runtime: str, tmp_path: Path
) -> None:
    with run_server(make_scripted(tmp_path), tmp_path / "state", runtime=runtime) as server:
        regions, sockets = server.find_regions(), _find_sockets(server)
        assert (len(server.find_stubs()), bool(regions), len(sockets)) == ((2, True, 0) if regions else (0, False, 1))
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(30)
        wait_until(lambda: not server.find_processes())
        assert server.events == ["closed"]
        assert [path for path in [*regions, *sockets] if path.exists()] == []


@_RUNTIMES
def test_after_a_kill_no_process_and_no_shared_memory_remains_and_the_server_can_be_started_again(
    runtime: str, tmp_path: Path
) -> None:
    served = make_scripted(tmp_path)
    with run_server(served, tmp_path / "state", runtime=runtime) as server:
        regions = server.find_regions()
        server.process.kill()
        wait_until(lambda: not server.find_processes())
    assert not any(path.exists() for path in regions)
    with run_server(served, tmp_path / "state", runtime=runtime) as server:
        assert asyncio.run(_complete(server.url)) == "cba"


def _find_sockets(server: RunningServer) -> list[Path]:
    return [path for path in server.state_dir.rglob("*") if path.is_socket()]


async def _complete(url: str) -> str:
    async with Client(url) as client:
        return "".join([chunk.text async for chunk in client.stream(CompletionRequest("abc"))])


async def test_two_servers_of_one_model_do_not_disturb_each_other_and_editors_use_the_first(tmp_path: Path) -> None:
    served, state_dir = make_scripted(tmp_path), tmp_path / "state"
    place = served.find_place(state_dir)
    with run_server(served, state_dir, runtime=EMBEDDED) as first:
        with run_server(served, state_dir, runtime=EMBEDDED) as second:
            assert await _complete(second.url) == "cba"
        assert (await _complete(first.url), await _complete(place.url)) == ("cba", "cba")
        await ensure_served(place, EngineConfig(served.model_dir), served.repository, 60, print)
        assert not any("inference.hosting.host" in each for each in find_processes(tmp_path).values())


async def test_a_model_that_is_refused_is_refused_in_one_sentence(tmp_path: Path) -> None:
    served, state_dir = Served(tmp_path / "model", find_model_repository()), tmp_path / "state"
    shutil.copytree(find_bundled_model(), served.model_dir)
    (served.model_dir / "model.safetensors").write_text("{}")
    with pytest.raises(ModelError) as caught:
        await ensure_served(
            served.find_place(state_dir), EngineConfig(served.model_dir), served.repository, 60, lambda _: None
        )
    told = subprocess.run(served.command(state_dir, "--port=0"), capture_output=True, text=True, timeout=60)
    assert told.returncode == 1
    for sentence in (str(caught.value), told.stderr.strip().splitlines()[-1]):
        assert "\n" not in sentence
        assert str(tmp_path) in sentence


_ASKED = "def make_node(value):\n    return valu"


async def test_an_editor_gets_ghost_text_and_again_after_the_server_was_killed(
    start_editor: StartEditor, tmp_path: Path
) -> None:
    command = (sys.executable, "-m", "midtoken", "lsp", f"--state-dir={tmp_path}")
    editor = await start_editor(Script(command, tmp_path, tmp_path / "model.log"))
    editor.open(_ASKED)
    await wait_for(lambda: any("completion server ready" in text for text in editor.logged), 60)
    assert str((await editor.ghost(1, 15)).insert_text).startswith("value")
    killed = [pid for pid, line in find_processes(tmp_path).items() if "inference.hosting.host" in line]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(40):
        for number in itertools.count():
            editor.replace_all(f"{_ASKED[:-4]}{number} * valu")  # a text that was not answered before
            if await editor.ask(1, len(f"    return {number} * valu")):
                break
            await asyncio.sleep(0.5)
    assert not find_processes(tmp_path).keys() & set(killed)
    assert sum(path.is_socket() for path in tmp_path.rglob("*")) == 1
    await editor.leave()
    end_servers(tmp_path)
