"""The process of the language server: what it writes, and when it ends."""

import asyncio

import pytest

from tests.support.lsp_editor import StartEditor, WriteScript, wait_for

pytestmark = pytest.mark.e2e


async def test_the_log_of_the_process_contains_no_source_text(
    start_editor: StartEditor, write_script: WriteScript
) -> None:
    editor = await start_editor(write_script({"ends_with": "secret", "texts": ["answer"]}))
    editor.open("secret")
    assert (await editor.ghost(0, 6)).insert_text == "secretanswer"
    editor.edit(0, 6, "secret", end=(0, 0))
    change = {"textDocument": {"uri": "secret"}, "contentChanges": "secret"}
    editor.send({"jsonrpc": "2.0", "method": "textDocument/didChange", "params": change})
    editor.send({"jsonrpc": "1.0", "id": 1, "method": "textDocument/x", "params": {"text": "secret"}})
    await editor.ask(0, 6)
    await wait_for(lambda: len(editor.shown) == 2)  # both invalid messages were reported
    assert await editor.leave() == 0
    assert editor.process.stderr is not None
    written = (await editor.process.stderr.read()).decode()
    assert written != ""  # otherwise there is nothing to search
    for text in ("secret", "answer"):
        assert text not in written + "".join(editor.shown + editor.logged)


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
