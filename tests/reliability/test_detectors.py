"""Each detector of the other rows finds a fault that was planted for it."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest

from inference.protocol.completion import CompletionRequest
from inference.serving.client import Client
from tests.support.chaos_editor import start_editor
from tests.support.chaos_proxy import Mode, run_proxy
from tests.support.reliability import find_growth
from tests.support.server_watch import ServerWatch, Tally, ends, find_orphans, find_unreleased, take_sample
from tests.support.servers import EMBEDDED, RunningServer, make_slow, run_server, wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Whose script each test leaves as it was."""
    folder = tmp_path_factory.mktemp("detectors")
    with run_server(make_slow(folder), folder / "state", runtime=EMBEDDED) as server:
        yield server


async def _complete(client: Client) -> str:
    return "".join([chunk.text async for chunk in client.stream(CompletionRequest("def main(", max_tokens=4))])


async def test_a_request_whose_end_is_lost_is_stuck_and_not_released(server: RunningServer) -> None:
    server.served.change(plant="leak")
    tally = Tally(end_s=1.0)
    async with Client(server.url) as client:
        for _ in range(10):
            await tally.hurry(_complete(client), None)
        server.served.change()
        assert tally.num_stuck == 1
        assert await find_unreleased(client, 0.5) == 1


async def test_a_changed_text_is_wrong_and_an_editor_that_gets_none_is_not_back(
    server: RunningServer, tmp_path: Path
) -> None:
    server.served.change()
    async with run_proxy(server.url) as proxy:
        address = f"--server=127.0.0.1:{proxy.port}"
        editor = await start_editor([sys.executable, "-m", "midtoken", "lsp", f"--state-dir={tmp_path}", address])
        await editor.learn()
        await editor.wait_until_back(30)
        assert not editor.seen.wrong
        server.served.change(plant="wrong")
        await editor.wait_until_back(30)
        assert editor.seen.wrong
        server.served.change()
        async with proxy.failing(Mode.REFUSE):
            assert await editor.wait_until_back(0.5) is None
        await editor.leave()


async def test_a_request_without_an_end_is_told_from_one_with_an_error(server: RunningServer) -> None:
    server.served.change(fault="hang")
    async with Client(server.url) as client:
        assert await ends(asyncio.create_task(_complete(client)), 0.5) is None
        server.served.change(fault="raise")
        assert "ServerError" in str(await ends(asyncio.create_task(_complete(client)), 30))
    server.served.change()


async def test_a_process_that_outlives_its_server_is_an_orphan(server: RunningServer) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(server.state_dir)])
    try:
        wait_until(lambda: child.pid in server.find_processes())  # its command line is the parent's at first
        found = find_orphans(server, [])
        assert sum(f"process {child.pid}" in line for line in found) == 1
        assert sum(line.startswith("file") for line in found) == 1  # its socket
    finally:
        child.kill()
        child.wait()


async def test_what_a_server_keeps_of_each_request_is_growth(server: RunningServer) -> None:
    server.served.change(plant="hold")
    watch = ServerWatch(server)
    async with Client(server.url) as client:
        for _ in range(9):
            await _complete(client)
            watch.samples.append(take_sample(server))
    server.served.change()
    for read in (attrgetter(name) for name in ("memory_mib", "num_files", "num_threads")):
        assert find_growth(watch.find(read)) >= 2
