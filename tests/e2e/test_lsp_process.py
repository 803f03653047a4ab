"""The processes of a language server: what they write, which machines they ask, and when they end."""

import asyncio
from pathlib import Path

import pytest

from tests.support.lsp_editor import Script, StartEditor, WriteScript, wait_for

pytestmark = pytest.mark.e2e

# Python reads it in each process. It notes addresses and names that are asked for, and files that are written.
_WATCH = """
import os, sys

def note(event, arguments):
    found = []
    if event == "socket.connect" and isinstance(arguments[1], tuple) and not str(arguments[1][0]).startswith("127."):
        found = ["address", arguments[1][0]]
    elif event == "socket.getaddrinfo" and arguments[0] not in ("127.0.0.1", "localhost"):
        found = ["name", arguments[0]]
    elif event == "open" and isinstance(arguments[0], str) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        found = ["file", os.path.abspath(arguments[0])]
    if found and found[1] != LOG:
        with open(LOG, "a") as log:
            print(*found, file=log)

sys.addaudithook(note)
"""


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


async def test_no_other_machine_is_asked_and_files_are_in_midtokens_own_folders_only(
    own_lsp: Script, start_editor: StartEditor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "seen"
    (tmp_path / "sitecustomize.py").write_text(f"LOG = {str(log)!r}\n{_WATCH}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    editor = await start_editor(own_lsp)
    editor.open("class Node:\n    pass\n\n\ndef make():\n    return Nod")
    while not (found := await editor.ask(5, 14)) or not found.items:
        await asyncio.sleep(0.1)
    await editor.leave()
    seen = log.read_text().splitlines()
    own = (f"file {tmp_path}", "file /tmp/midtoken-", "file /dev/")
    assert f"file {tmp_path}" in "\n".join(seen), "it is watched"
    assert [each for each in seen if not each.startswith(own) and "/__pycache__/" not in each] == []
