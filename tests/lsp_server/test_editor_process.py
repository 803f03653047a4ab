"""The end of the editor's process."""

import asyncio
import subprocess

import pytest

from lsp_server.editor_process import EditorProcess


async def test_a_process_that_is_watched_later_is_noticed_too() -> None:
    editor = EditorProcess(poll_s=0)
    waiting = asyncio.create_task(editor.wait())
    await asyncio.sleep(0)
    with subprocess.Popen(["sleep", "60"]) as process:
        editor.watch(process.pid)
        process.kill()
    await asyncio.wait_for(waiting, 20)


@pytest.mark.parametrize("process_id", [None, 2**31 - 1, 2**80, 1])
async def test_no_process_that_is_not_there_or_does_not_end_is_waited_for(process_id: int | None) -> None:
    editor = EditorProcess(poll_s=0)
    editor.watch(process_id)
    waiting = asyncio.create_task(editor.wait())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
