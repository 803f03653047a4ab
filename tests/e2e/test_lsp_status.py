"""What the user is told when there is no suggestion."""

import asyncio
import dataclasses
import sys

import pytest

from tests.support.lsp_editor import StartEditor, WriteScript, wait_for

pytestmark = pytest.mark.e2e


async def test_typing_is_not_blocked_while_the_server_starts_and_the_log_says_so(
    start_editor: StartEditor, write_script: WriteScript
) -> None:
    editor = await start_editor(write_script({"ends_with": "a", "texts": ["b"]}, start_s=1.5))
    editor.open("a")
    assert await editor.ask(0, 1) is None
    await wait_for(lambda: any("starting the completion server" in text for text in editor.logged))
    await wait_for(lambda: any("completion server ready" in text for text in editor.logged))
    assert (await editor.ghost(0, 1)).insert_text == "ab"


async def test_a_server_that_cannot_start_is_reported_once(
    start_editor: StartEditor, write_script: WriteScript
) -> None:
    editor = await start_editor(write_script(start_error="no tritonserver found; install nvidia-pytriton"))
    editor.open("a")
    for _ in range(5):
        assert await editor.ask(0, 1) is None
    assert editor.shown == ["midtoken: no tritonserver found; install nvidia-pytriton"]


async def test_a_server_that_does_not_answer_is_reported_once(
    start_editor: StartEditor, write_script: WriteScript
) -> None:
    main = "import argparse, sys; from midtoken.commands import lsp; parser = argparse.ArgumentParser(); "
    main += "lsp.add_arguments(parser); sys.exit(lsp.run(parser.parse_args()))"
    command = (sys.executable, "-c", main, "--stdio", "--server", "127.0.0.1:1")  # nothing may listen on port 1
    editor = await start_editor(dataclasses.replace(write_script(), command=command))
    editor.open("a")
    for _ in range(3):
        assert await editor.ask(0, 1) is None
    await wait_for(lambda: editor.shown != [])
    assert len(editor.shown) == 1
    assert editor.shown[0].startswith("midtoken: no server answers at 127.0.0.1:1")


async def test_a_bad_setting_is_reported_and_the_others_are_used(
    start_editor: StartEditor, write_script: WriteScript
) -> None:
    script = write_script({"ends_with": "a", "texts": ["b"]})
    editor = await start_editor(script, options={"maxTokens": "many"}, settings={"extent": "page"})
    editor.open("a")
    assert (await editor.ghost(0, 1)).insert_text == "ab"
    await wait_for(lambda: len(editor.shown) == 2)
    assert (
        editor.shown[0] == "midtoken: setting maxTokens must be a whole number from 1 to 4096, not 'many'; it stays 64"
    )
    assert editor.shown[1].startswith("midtoken: setting extent must be one of")


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
