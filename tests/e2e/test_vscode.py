"""What the user sees in a real VS Code with the extension in editors/vscode."""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.lsp_editor import Script, WriteScript
from tests.support.servers import RunningServer, find_processes
from tests.support.vscode import VsCode, find_missing, install_extension, open_vscode

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_missing() is not None, reason=str(find_missing())),
    pytest.mark.timeout(300),
]

_ROOT = Path(__file__).parents[2]
_NODE = """class Node:
    def __init__(self, value):
        self.value = value


"""

OpenVsCode = Callable[..., VsCode]


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extensions")
    install_extension(folder)
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def open_editor(extensions: Path, workspace: Path, tmp_path: Path) -> Iterator[OpenVsCode]:
    """A function that opens a file of the workspace with the given text, and puts the cursor at its end.

    It waits for a status that contains `status`. The command `midtoken` is beside the workspace.
    """
    with ExitStack() as stack:

        def open_editor(text: str, name: str = "file.py", status: str = "ready", **settings: Any) -> VsCode:
            file = workspace / name
            file.write_text(text)
            environment = {"PATH": f"{workspace.parent}/bin:/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path)}
            named = {f"midtoken.{setting}": value for setting, value in settings.items()}
            editor = stack.enter_context(open_vscode(extensions, workspace, file, environment, named))
            editor.wait_for(lambda: status in (editor.status or ""), True)
            editor.press("Control+End")
            return editor

        yield open_editor


def _write_command(path: Path, folder: Path, command: Sequence[str]) -> None:
    """Writes a program `midtoken` that runs a command in a folder, with the arguments that it is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\ncd {shlex.quote(str(folder))} && exec {shlex.join(command)} "$@"\n')
    path.chmod(0o755)


def _write_midtoken(workspace: Path, script: Script) -> None:
    _write_command(workspace.parent / "bin/midtoken", script.folder, script.command)


def _link_real_command(workspace: Path) -> None:
    link = workspace.parent / "bin/midtoken"
    link.parent.mkdir(parents=True)
    link.symlink_to(Path(sys.executable).with_name("midtoken"))


def test_typing_half_a_word_shows_the_rest_and_tab_accepts_it(
    open_editor: OpenVsCode, workspace: Path, write_script: WriteScript
) -> None:
    _write_midtoken(workspace, write_script({"ends_with": "-> Nod", "texts": ["e:"]}))
    editor = open_editor(_NODE)
    editor.type("def first() -> Nod")
    editor.wait_for_ghost("e:")
    editor.press("Tab")
    assert editor.save() == _NODE + "def first() -> Node:"


def test_words_and_lines_can_be_accepted_one_by_one(
    open_editor: OpenVsCode, workspace: Path, write_script: WriteScript
) -> None:
    _write_midtoken(workspace, write_script({"ends_with": "if Nod", "texts": ["e is None:\n    a = 1\n    b = 2"]}))
    editor = open_editor("")
    editor.type("if Nod")
    editor.wait_for(lambda: "e is None:" in (editor.ghost or ""), True)
    editor.press("Control+ArrowRight")
    assert editor.save().rstrip() == "if Node"
    editor.press("Control+Alt+ArrowRight")
    assert editor.save().rstrip() == "if Node is None:"


def test_after_the_first_line_is_accepted_the_next_line_is_shown(
    open_editor: OpenVsCode, workspace: Path, write_script: WriteScript
) -> None:
    texts = ["\n    a = 1\n", "    b = 2"]
    _write_midtoken(workspace, write_script({"ends_with": "if x:", "texts": texts, "delay_s": 0.1}))
    editor = open_editor("")
    editor.type("if x:")
    editor.wait_for(lambda: "a = 1" in (editor.ghost or ""), True)
    editor.press("Tab")
    editor.wait_for(lambda: "b = 2" in (editor.ghost or ""), True)
    editor.press("Tab")
    assert editor.save() == "if x:\n    a = 1\n    b = 2"


def test_the_status_says_that_all_is_well(open_editor: OpenVsCode, workspace: Path, write_script: WriteScript) -> None:
    _write_midtoken(workspace, write_script({"ends_with": "x", "texts": ["y"]}, start_s=3))
    editor = open_editor("", status="starting the completion server")
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    assert editor.notifications == []


def test_a_file_of_another_language_is_off_and_can_be_switched_on(
    open_editor: OpenVsCode, workspace: Path, write_script: WriteScript
) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e"]})
    _write_midtoken(workspace, script)
    reason = "midtoken: off for this file: midtoken.languages does not contain javascript"
    editor = open_editor("", "file.js", status=reason, languages=["python"])
    editor.type("Nod")
    assert not script.log.exists()
    editor.run("midtoken: Enable Suggestions in This File's Language")
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    editor.type(" Nod")
    editor.wait_for_ghost("e")


def test_where_the_cursor_rests_the_text_is_sent_before_a_key(
    open_editor: OpenVsCode, workspace: Path, write_script: WriteScript
) -> None:
    script = write_script()
    _write_midtoken(workspace, script)
    editor = open_editor(_NODE, command=str(workspace.parent / "bin/midtoken"))
    editor.wait_for(lambda: script.last_prefetch, (_NODE, ""))
    editor.press("Control+Home")
    editor.press("Shift+ArrowDown")
    editor.wait_for(lambda: script.last_prefetch, ("", _NODE.partition("\n")[2]))
    assert script.count("started") == 0


def test_suggestions_can_be_disabled(open_editor: OpenVsCode, workspace: Path, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e"]})
    _write_midtoken(workspace, script)
    editor = open_editor("")
    editor.type("Nod")
    editor.wait_for_ghost("e")
    editor.run("midtoken: Disable Suggestions")
    editor.wait_for(lambda: editor.status, "midtoken: off for this file: midtoken.enabled is false")
    num_started = script.count("started")
    editor.type(" Nod")
    editor.save()
    assert (editor.ghost, script.count("started")) == (None, num_started)
    editor.run("midtoken: Enable Suggestions")
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    editor.type(" Nod")
    editor.wait_for_ghost("e")


def test_the_settings_page_decides_what_is_sent(
    open_editor: OpenVsCode, workspace: Path, write_script: WriteScript
) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e"]})
    _write_midtoken(workspace, script)
    editor = open_editor("# a line\n" * 200, maxPrefixBytes=300)
    editor.type("Nod")
    editor.wait_for_ghost("e")
    assert max(len(event["prefix"]) for event in script.events) <= 300


def test_a_command_can_be_named_with_arguments(
    open_editor: OpenVsCode, tmp_path: Path, write_script: WriteScript
) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e"]})
    _write_command(tmp_path / "program", script.folder, [])
    editor = open_editor("", command=[str(tmp_path / "program"), *script.command])
    editor.type("Nod")
    editor.wait_for_ghost("e")


@pytest.mark.parametrize("name", ["file.py", "private.py"])
def test_a_trusted_workspace_takes_no_protection_away_and_runs_no_program(
    name: str, open_editor: OpenVsCode, workspace: Path, write_script: WriteScript, tmp_path: Path
) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e"]})
    _write_midtoken(workspace, script)
    for path in (workspace / ".venv/bin/midtoken", workspace / "own/midtoken"):
        _write_command(path, tmp_path, ["touch", str(tmp_path / "ran")])
    settings = {"exclude": [], "redactSecrets": False, "command": "own/midtoken", "server": "127.0.0.1:1"}
    (workspace / ".vscode").mkdir()
    (workspace / ".vscode/settings.json").write_text(
        json.dumps({f"midtoken.{setting}": value for setting, value in settings.items()})
    )
    secret = "ghp" + "_q7Rk2mZx9Lw4Tn8Vb3Yc6Hd1Jf5Gs0PaEuQi"
    status = "ready" if name == "file.py" else "setting exclude: `private.*`"
    editor = open_editor(f'token = "{secret}"\n', name, status, exclude=["private.*"])
    editor.type("Nod")
    if name == "file.py":
        editor.wait_for_ghost("e")
    editor.save()
    sent = [event["prefix"] for event in script.events if "prefix" in event] if script.log.exists() else []
    assert (len(sent) > 0, secret in "".join(sent)) == (name == "file.py", False)
    assert not (tmp_path / "ran").exists()


def test_without_a_command_one_message_says_what_to_do(open_editor: OpenVsCode) -> None:
    editor = open_editor("", status="there is no command midtoken")
    editor.wait_for(lambda: len(editor.notifications), 1)
    assert "there is no command midtoken" in editor.notifications[0]
    editor.type("Nod")
    editor.save()
    assert len(editor.notifications) == 1


def test_an_error_of_the_server_is_shown_once_and_stays_in_the_status(
    open_editor: OpenVsCode, workspace: Path, write_script: WriteScript
) -> None:
    _write_midtoken(workspace, write_script(start_error="no tritonserver found"))
    editor = open_editor("", status="midtoken: no tritonserver found")
    editor.type("Nod")
    editor.save()
    assert editor.notifications == ["midtoken: no tritonserver found"]


def test_a_language_server_that_is_killed_is_started_again(
    open_editor: OpenVsCode, workspace: Path, write_script: WriteScript, tmp_path: Path
) -> None:
    _write_midtoken(workspace, write_script({"ends_with": "Nod", "texts": ["e"]}))
    editor = open_editor("")
    editor.type("Nod")
    editor.wait_for_ghost("e")
    (server,) = find_processes(tmp_path / "script.json")
    subprocess.run(["kill", f"-{signal.SIGKILL}", str(server)], check=True)
    editor.wait_for(lambda: len(find_processes(tmp_path / "script.json").keys() - {server}), 1)
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    _type_until_ghost(editor, " Nod", "e")


def _type_until_ghost(editor: VsCode, text: str, ghost: str) -> None:
    """VS Code asks no language server in the moment before it is registered."""

    def type_and_read() -> Any:
        if editor.ghost is None:
            editor.type(text)
            time.sleep(1)
        return editor.ghost

    editor.wait_for(type_and_read, ghost)


def test_the_language_server_can_be_restarted(
    open_editor: OpenVsCode, workspace: Path, write_script: WriteScript, tmp_path: Path
) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e"]})
    _write_midtoken(workspace, script)
    editor = open_editor("")
    editor.type("Nod")
    editor.wait_for_ghost("e")
    (server,) = find_processes(tmp_path / "script.json")
    editor.run("midtoken: Restart Language Server")
    editor.wait_for(lambda: script.count("closed"), 1)
    editor.wait_for(lambda: len(find_processes(tmp_path / "script.json").keys() - {server}), 1)
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    _type_until_ghost(editor, " Nod", "e")
    assert len(find_processes(tmp_path / "script.json")) == 1


def test_no_log_contains_text_of_the_file(open_editor: OpenVsCode, workspace: Path, write_script: WriteScript) -> None:
    _write_midtoken(workspace, write_script({"ends_with": "secret", "texts": ["answer"]}))
    editor = open_editor("")
    editor.type("secret")
    editor.wait_for_ghost("answer")
    logs = [path for path in editor.logs.rglob("*.log") if "midtoken" in str(path.relative_to(editor.logs))]
    written = "".join(path.read_text() for path in logs)
    assert "completion server ready" in written  # otherwise there is nothing to search
    assert "secret" not in written
    assert "answer" not in written


def _write_telling_midtoken(workspace: Path, record: Path) -> None:
    command = [sys.executable, "-m", "tests.support.telling_server", str(record)]
    _write_command(workspace.parent / "bin/midtoken", _ROOT, command)


def test_the_status_of_a_file_is_what_the_language_server_tells(
    open_editor: OpenVsCode, workspace: Path, tmp_path: Path
) -> None:
    _write_telling_midtoken(workspace, tmp_path / "record")
    tell = 'status {{"uri": {}, "state": "{}", "code": "x", "message": "this file is excluded"}}\n'
    editor = open_editor(tell.format('"here"', "off"), status="midtoken: off for this file: this file is excluded")
    editor.file.write_text(tell.format('"here"', "ready"))  # VS Code reads it again
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    editor.file.write_text(tell.format("null", "error"))
    editor.wait_for(lambda: editor.status, "midtoken: this file is excluded")


def test_text_that_was_typed_before_the_server_was_ready_gets_its_suggestion(
    open_editor: OpenVsCode, workspace: Path, tmp_path: Path
) -> None:
    _write_telling_midtoken(workspace, tmp_path / "record")
    editor = open_editor("silent\n")
    ready = 'status {"uri": null, "state": "ready", "code": "x", "message": "", "after_s": 4}'
    editor.type(ready + "\nif")
    editor.wait_for_ghost("(one 😀)")


def test_the_real_model_completes_the_name_of_the_class(
    open_editor: OpenVsCode, workspace: Path, real_server: RunningServer
) -> None:
    _link_real_command(workspace)
    editor = open_editor(_NODE, server=real_server.url)
    editor.type("def first(nodes) -> Nod")
    editor.wait_for(lambda: (editor.ghost or "").startswith("e"), True)
    editor.picture(_ROOT / "build/pictures/vscode.png")
    editor.press("Tab")
    assert editor.save().startswith(_NODE + "def first(nodes) -> Node")


def test_the_healing_at_the_cursor_is_explained_from_the_text_in_the_editor(
    open_editor: OpenVsCode, workspace: Path, real_server: RunningServer
) -> None:
    _link_real_command(workspace)
    editor = open_editor(_NODE, server=real_server.url)
    editor.type("x = '😀'; y = Nod")  # not saved; the cursor is after a character of two UTF-16 code units
    editor.run("midtoken: Explain Healing at the Cursor")
    editor.wait_for(lambda: all(healing in editor.terminal for healing in ("exact", "greedy", "single", "none")), True)
    assert "e(1)'" in editor.terminal  # the panel shows the end of the page


@pytest.mark.parametrize("languages", [["python"], ["go"]], ids=["by its status", "by the command"])
def test_an_excluded_file_is_not_explained(languages: list[str], open_editor: OpenVsCode, workspace: Path) -> None:
    _link_real_command(workspace)
    rule = "nothing of this file is sent: setting exclude: `hidden/*`"
    (workspace / "hidden").mkdir()
    is_served = languages == ["python"]
    settings = {"server": "127.0.0.1:9", "exclude": ["hidden/*"], "languages": languages}
    editor = open_editor(
        "x = 1", "hidden/file.py", rule if is_served else "midtoken.languages does not contain python", **settings
    )
    editor.type("2")  # not saved
    editor.run("midtoken: Explain Healing at the Cursor")
    editor.wait_for(lambda: rule in " ".join([*editor.notifications, editor.terminal.replace("·", " ")]), True)
    assert (rule in str(editor.terminal)) is not is_served


def test_an_untitled_document_that_the_language_server_does_not_know_is_not_explained(
    open_editor: OpenVsCode, workspace: Path
) -> None:
    _link_real_command(workspace)
    switches = {"exclude": ["file.py"], "languages": ["python"]}
    editor = open_editor("", server="127.0.0.1:9", status="setting exclude: `file.py`", **switches)
    editor.run("File: New Untitled Text File")
    editor.wait_for(lambda: "does not contain plaintext" in (editor.status or ""), True)
    editor.type("PASSWORD=abc")
    editor.run("midtoken: Explain Healing at the Cursor")
    editor.wait_for(lambda: "midtoken: midtoken.languages does not contain plaintext." in editor.notifications, True)
    assert editor.terminal == ""
