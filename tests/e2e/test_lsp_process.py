"""The process of the language server: what it writes, and when it ends."""

import asyncio

import pytest

from tests.support.lsp_editor import StartEditor, WriteScript, wait_for

pytestmark = pytest.mark.e2e


async def test_the_process_ends_with_its_editor(start_editor: StartEditor, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "a", "texts": ["never"], "delay_s": 60})
    editor = await start_editor(script)
    editor.open("a")
    asking = editor.ask(0, 1)
    await wait_for(lambda: script.count("started") == 1)
    assert editor.process.stdin is not None
    editor.process.stdin.close()
    assert await asyncio.wait_for(editor.process.wait(), 20) == 1
    assert (script.count("cancelled"), script.count("closed")) == (1, 1)
    asking.cancel()
