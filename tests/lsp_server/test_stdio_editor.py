"""The end of the editor's process."""

import asyncio
import subprocess

import pytest

from inference.platforms import is_there
from lsp_server.stdio import wait_for_end
from tests.support.lsp_in_process import run_in_process


async def test_a_process_that_is_known_later_is_noticed_too() -> None:
    ids: list[int | None] = [None]
    waiting = asyncio.create_task(wait_for_end(lambda: ids[-1], poll_s=0))
    await asyncio.sleep(0)
    with subprocess.Popen(["sleep", "60"]) as process:
        ids.append(process.pid)
        process.kill()
    await asyncio.wait_for(waiting, 20)


@pytest.mark.parametrize(("process_id", "is_known"), [(2**31 - 1, False), (2**80, False), (1, True)])
def test_a_process_of_another_machine_is_not_there(process_id: int, is_known: bool) -> None:
    assert is_there(process_id) is is_known


@pytest.mark.parametrize(("process_id", "known"), [(None, None), (2**31 - 1, None), (1, 1)])
async def test_only_an_editor_that_is_there_is_waited_for(process_id: int | None, known: int | None) -> None:
    async with run_in_process() as both:
        both.server.protocol.receive(
            b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}, "processId": %s}}'
            % str(process_id or "null").encode()
        )
        assert both.server.editor_id == known
