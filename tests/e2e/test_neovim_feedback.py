"""What Neovim and the language server tell each other: states, and which suggestions are asked for."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.neovim_editor import Editor, OpenEditor

pytestmark = pytest.mark.e2e


def _command(record: Path) -> list[str]:
    return [sys.executable, "-m", "tests.support.telling_server", str(record)]


def _read(record: Path, kind: str) -> list[Any]:
    notes = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    return [value for name, value in notes if name == kind]


def _find_status(editor: Editor) -> str:
    return str(editor.lua("return require('midtoken').status()"))


@pytest.mark.parametrize(
    ("uri", "state", "status"),
    [
        ('"here"', "off", "midtoken: off (this file is excluded)"),
        ("null", "off", "midtoken: off (this file is excluded)"),
        ("null", "error", "midtoken: error (this file is excluded)"),
        ('"here"', "error", "midtoken: error (this file is excluded)"),
        ("null", "starting", "midtoken: starting"),
        ("null", "ready", "midtoken: ready"),
    ],
)
def test_the_status_is_what_the_language_server_tells(
    open_editor: OpenEditor, tmp_path: Path, uri: str, state: str, status: str
) -> None:
    line = f'status {{"uri": {uri}, "state": "{state}", "code": "x", "message": "this file is excluded"}}'
    editor = open_editor(_command(tmp_path / "record"), [line, ""])
    editor.wait_for(lambda: _find_status(editor), status)


def test_a_state_of_one_file_ends_when_it_is_ready(open_editor: OpenEditor, tmp_path: Path) -> None:
    tell = 'status {{"uri": "here", "state": "{}", "code": "x", "message": "too large"}}'
    editor = open_editor(_command(tmp_path / "record"), [tell.format("off"), ""])
    editor.wait_for(lambda: _find_status(editor), "midtoken: off (too large)")
    editor.nvim.command("silent checkhealth midtoken")
    assert "file.py: off (too large)" in "\n".join(editor.lines)
    editor.nvim.command("bdelete")
    editor.nvim.current.buffer[0] = tell.format("ready")
    editor.wait_for(lambda: _find_status(editor), "midtoken: ready")


def test_text_that_was_typed_before_the_server_was_ready_gets_its_suggestion(
    open_editor: OpenEditor, tmp_path: Path
) -> None:
    ready = 'status {"uri": null, "state": "ready", "code": "ready", "message": "", "after_s": 2}'
    editor = open_editor(_command(tmp_path / "record"), ["silent", ready, ""])
    editor.type("Gif")
    editor.wait_for(lambda: bool(_read(tmp_path / "record", "asked")), True)
    editor.wait_for_ghost("(one 😀)")


def test_a_suggestion_comes_after_del_too(open_editor: OpenEditor, tmp_path: Path) -> None:
    editor = open_editor(_command(tmp_path / "record"), ["f()x"])
    editor.type("A<Left>")
    editor.wait_for_ghost("(one 😀)")
    editor.type("<Del>")
    editor.wait_for(lambda: editor.lines, ["f()"])
    editor.wait_for_ghost("(one 😀)")


def test_several_suggestions_are_asked_for_when_the_next_one_is_wanted(open_editor: OpenEditor, tmp_path: Path) -> None:
    record = tmp_path / "record"
    editor = open_editor(_command(record), ["f"])
    editor.type("A")
    editor.wait_for_ghost("(one 😀)")
    assert "invoked" not in _read(record, "asked")
    for key, ghost in [("<M-n>", "(two)"), ("<M-n>", "[three]"), ("<M-n>", "(one 😀)"), ("<M-p>", "[three]")]:
        editor.type(key)
        editor.wait_for_ghost(ghost)
    assert _read(record, "asked").count("invoked") == 1
    editor.type("<Tab>")
    editor.wait_for(lambda: editor.lines, ["f[three]"])
