"""What the user sees in a real VS Code with the extension in editors/vscode."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.lsp_editor import Script, WriteScript
from tests.support.servers import RunningServer, find_processes
from tests.support.telling_server import build_command
from tests.support.vscode import MISSING, VsCode, install_extension, open_vscode, write_command

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

if MISSING is not None:
    pytest.skip(MISSING, allow_module_level=True)

_NODE = """class Node:
    def __init__(self, value):
        self.value = value


"""

Use = Callable[..., VsCode]


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extensions")
    install_extension(folder)
    return folder


@contextmanager
def _open(extensions: Path, folder: Path, name: str, text: str, status: str, **settings: Any) -> Iterator[VsCode]:
    """Opens a file of `folder`/workspace that has this text, and waits for a status.

    The command `midtoken` is `folder`/bin/midtoken.
    """
    file = folder / "workspace" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "XDG_STATE_HOME": str(folder)}
    named = {f"midtoken.{setting}": value for setting, value in settings.items()}
    with open_vscode(extensions, folder / "workspace", file, environment, named) as editor:
        editor.wait_for(lambda: status in editor.status, True)
        editor.press("Control+End")
        yield editor


@pytest.fixture(scope="module")
def window(extensions: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VsCode]:
    with _open(extensions, tmp_path_factory.mktemp("window"), "file.py", "", "no command", context=37) as window:
        yield window


@pytest.fixture
def use(window: VsCode) -> Use:
    """A function that restarts the language server of the module's window, with another command.

    It waits for a status. The window shows a file with the given text, with the cursor at its end.
    """

    def use(command: Script | Sequence[str], text: str = "", status: str = "ready", *last: str) -> VsCode:
        program = window.file.parents[1] / "bin/midtoken"
        program.unlink(missing_ok=True)
        window.run("midtoken: Restart Language Server")
        window.wait_for(lambda: "no command" in window.status, True)
        write_command(program, command.command if isinstance(command, Script) else command, *last)
        window.press("Escape")
        window.press("Control+Home")
        window.file.write_text(text)
        window.run("File: Revert File")
        window.wait_for(lambda: window.screen[1][:1], text.split("\n")[:1])
        window.run("Notifications: Clear All Notifications")
        window.run("midtoken: Restart Language Server")
        window.wait_for(lambda: status in window.status, True)
        window.press("Control+End")
        time.sleep(1)  # VS Code asks no language server in the moment before it is registered
        return window

    return use


def test_without_a_command_one_message_says_what_to_do(window: VsCode) -> None:
    window.wait_for(lambda: len(window.notifications), 1)
    assert "there is no command midtoken" in window.notifications[0]
    window.type("Nod")
    window.save()
    assert len(window.notifications) <= 1  # VS Code hides it after a while


def test_an_error_of_the_server_is_shown_once_and_stays_in_the_status(use: Use, write_script: WriteScript) -> None:
    editor = use(write_script(start_error="no tritonserver found"), "", "midtoken: no tritonserver found")
    editor.wait_for(lambda: editor.notifications, ["midtoken: no tritonserver found"])
    editor.type("Nod")
    editor.save()
    assert len(editor.notifications) <= 1


def test_a_suggestion_is_typed_ahead_and_accepted_by_word_and_whole(use: Use, write_script: WriteScript) -> None:
    editor = use(write_script({"ends_with": "Nod", "texts": ["e(value, x)"]}), "é = '😀'; y =")
    _type_until_ghost(editor, " Nod", "e(value, x)")
    editor.type("e")
    editor.wait_for_ghost("(value, x)")
    editor.press("Control+ArrowRight")
    editor.wait_for(lambda: editor.ghost not in (None, "(value, x)"), True)
    editor.press("Tab")
    editor.wait_for_ghost(None)
    assert re.fullmatch(r"é = '😀'; y =( Nod)+e\(value, x\)", editor.save())


def test_where_the_cursor_rests_the_text_is_sent_before_a_key(use: Use, write_script: WriteScript) -> None:
    editor = use(script := write_script(), _NODE)
    editor.wait_for(lambda: script.last_prefetch, (_NODE, ""))
    editor.press("Control+Home")
    editor.press("Shift+ArrowDown")
    editor.wait_for(lambda: script.last_prefetch, ("", _NODE.partition("\n")[2]))
    assert script.count("started") == 0


def test_suggestions_can_be_disabled(use: Use, write_script: WriteScript) -> None:
    editor = use(script := write_script({"ends_with": "Nod", "texts": ["e"]}))
    editor.type("Nod")
    editor.wait_for_ghost("e")
    editor.run("midtoken: Enable or Disable Suggestions")
    editor.wait_for(lambda: editor.status, "midtoken: off for this file: midtoken.enabled is false")
    num_started = script.count("started")
    editor.type(" Nod")
    editor.save()
    assert (editor.ghost, script.count("started")) == (None, num_started)
    editor.run("midtoken: Enable or Disable Suggestions")
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    editor.type(" Nod")
    editor.wait_for_ghost("e")


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_language_server_that_is_killed_or_restarted_starts_again(
    use: Use, write_script: WriteScript, tmp_path: Path, is_killed: bool
) -> None:
    editor = use(script := write_script({"ends_with": "Nod", "texts": ["e"]}))
    editor.type("Nod")
    editor.wait_for_ghost("e")
    (server,) = find_processes(tmp_path / "script.json")
    if is_killed:
        os.kill(server, signal.SIGKILL)
    else:
        editor.run("midtoken: Restart Language Server")
        editor.wait_for(lambda: script.count("closed"), 1)
    editor.wait_for(lambda: len(find_processes(tmp_path / "script.json").keys() - {server}), 1)
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    _type_until_ghost(editor, " Nod", "e")
    assert len(find_processes(tmp_path / "script.json")) == 1


def _has_status(editor: VsCode, reason: str) -> bool:
    return reason in editor.status


def _type_until_ghost(editor: VsCode, text: str, ghost: str) -> None:
    """VS Code asks no language server in the moment before it is registered."""

    def type_and_read() -> Any:
        if editor.ghost is None:
            editor.type(text)
            time.sleep(1)
        return editor.ghost

    editor.wait_for(type_and_read, ghost)


def test_no_log_contains_text_of_the_file(use: Use, write_script: WriteScript) -> None:
    editor = use(write_script({"ends_with": "secret", "texts": ["answer"]}))
    editor.type("secret")
    editor.wait_for_ghost("answer")
    logs = [path for path in editor.logs.rglob("*.log") if "midtoken" in str(path.relative_to(editor.logs))]
    written = "".join(path.read_text() for path in logs)
    assert "completion server ready" in written  # otherwise there is nothing to search
    assert "secret" not in written
    assert "answer" not in written


def test_the_status_of_a_file_is_what_the_language_server_tells(use: Use, tmp_path: Path) -> None:
    tell = 'status {{"uri": {}, "state": "{}", "code": "x", "message": "this file is excluded"}}\n'
    off = "midtoken: off for this file: this file is excluded"
    editor = use(build_command(tmp_path / "record"), tell.format('"here"', "off"), off)
    editor.file.write_text(tell.format('"here"', "ready"))  # VS Code reads it again
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    editor.file.write_text(tell.format("null", "error"))
    editor.wait_for(lambda: editor.status, "midtoken: this file is excluded")


def test_the_healing_at_the_cursor_is_explained_from_the_text_in_the_editor(
    use: Use, embedded_real_server: RunningServer
) -> None:
    editor = use((sys.executable, "-m", "midtoken"), _NODE, "ready", f"--server={embedded_real_server.url}")
    editor.type("x = '😀'; y = Nod")  # not saved; the cursor is after a character of two UTF-16 code units
    editor.run("midtoken: Explain Healing at the Cursor")
    editor.wait_for(lambda: all(healing in editor.terminal for healing in ("exact", "greedy", "single", "none")), True)
    editor.wait_for(lambda: "e(1)'" in editor.terminal, True)  # the panel shows the end of the page


def test_a_trusted_workspace_takes_no_protection_away_and_runs_no_program(
    extensions: Path, write_script: WriteScript, tmp_path: Path
) -> None:
    script, workspace = write_script({"ends_with": "Nod", "texts": ["e"]}), tmp_path / "workspace"
    write_command(tmp_path / "bin/midtoken", script.command)
    for path in (workspace / ".venv/bin/midtoken", workspace / "own/midtoken"):
        write_command(path, ["touch", str(tmp_path / "ran")])
    settings: dict[str, Any] = {
        **{"exclude": [], "redactSecrets": False, "command": "own/midtoken", "server": "127.0.0.1:1"},
        **{"enabled": True, "prefetch": True, "languages": ["*"]},
    }
    (workspace / ".vscode").mkdir()
    (workspace / ".vscode/settings.json").write_text(
        json.dumps({f"midtoken.{setting}": value for setting, value in settings.items()})
    )
    (workspace / "private.py").write_text("private = 1\n")
    (workspace / "other.js").write_text("private = 1\n")
    secret = "ghp" + "_q7Rk2mZx9Lw4Tn8Vb3Yc6Hd1Jf5Gs0PaEuQi"
    text, is_off = "# a line\n" * 40 + f'token = "{secret}"\n', "midtoken: off for this file: midtoken.enabled is false"
    of_user: dict[str, Any] = {"exclude": ["private.*"], "languages": ["python"], "prefetch": False}
    of_user |= {"enabled": False}
    with _open(extensions, tmp_path, "file.py", text, is_off, **of_user) as editor:
        editor.type("Nod")
        editor.run("midtoken: Enable or Disable Suggestions")  # by the user, so it counts for all levels
        editor.wait_for(lambda: editor.status, "midtoken: ready")
        _type_until_ghost(editor, " Nod", "e")
        for name, reason in (
            ("private.py", "setting exclude: `private.*`"),
            ("other.js", "does not contain javascript"),
        ):
            editor.open(name)
            editor.wait_for(partial(_has_status, editor, reason), True)
            editor.type("Nod")
            time.sleep(1)
    sent = "".join(event.get("prefix", "") + event.get("suffix", "") for event in script.events)
    assert ("token" in sent, secret in sent, "private" in sent) == (True, False, False)
    assert script.last_prefetch is None
    assert not (tmp_path / "ran").exists()


def test_a_cell_of_a_notebook_continues_the_code_of_the_cells_before_it(
    extensions: Path, write_script: WriteScript, tmp_path: Path
) -> None:
    script, workspace = write_script({"ends_with": "Nod", "texts": ["e"]}), tmp_path / "workspace"
    write_command(tmp_path / "bin/midtoken", script.command)
    code: dict[str, Any] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    text = {"cell_type": "markdown", "metadata": {}, "source": ["# Nodes"]}
    cells = [code | {"source": ["import os"]}, text, code | {"source": ["x = 1"]}]
    metadata = {"language_info": {"name": "python"}}
    workspace.mkdir()
    for name in ("file.ipynb", "hidden.ipynb"):
        notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 2}
        (workspace / name).write_text(json.dumps(notebook))

    def go_to_last_cell(name: str) -> None:
        editor.open(name)
        editor.wait_for(lambda: "x = 1" in editor.screen[1], True)
        for key in ("ArrowDown", "ArrowDown", "Enter", "Control+End"):
            editor.press(key)

    with _open(extensions, tmp_path, "file.py", "", "ready", exclude=["hidden.*"]) as editor:
        go_to_last_cell("file.ipynb")
        editor.type("; Nod")
        editor.wait_for_ghost("e")
        editor.press("Tab")
        editor.run("Notebook: Insert Code Cell Below")
        editor.wait_for(lambda: editor.screen[1], ["import os", "x = 1; Node", ""])
        editor.type("Nod")
        editor.wait_for_ghost("e")
        go_to_last_cell("hidden.ipynb")
        editor.wait_for(lambda: "setting exclude: `hidden.*`" in editor.status, True)
        editor.type("secret = Nod")
        time.sleep(1)
    sent = [event["prefix"] for event in script.events if event["event"] != "closed"]
    assert "import os\n\nx = 1; Nod" in sent
    assert "import os\n\nx = 1; Node\n\nNod" in sent
    assert "secret" not in "".join(sent)


def test_what_is_excluded_is_not_explained(extensions: Path, tmp_path: Path) -> None:
    """By the status of a file; by the command for one of another language; and what only the language server knows."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/midtoken").symlink_to(Path(sys.executable).with_name("midtoken"))  # in the workspace's folder
    rule = "nothing of this file is sent: setting exclude: `hidden/*`"
    settings: dict[str, Any] = {"server": "127.0.0.1:9", "exclude": ["hidden/*"], "languages": ["python"]}
    with _open(extensions, tmp_path, "hidden/file.py", "x = 1", rule, **settings) as editor:
        other = editor.file.with_name("other.go")
        other.write_text("x")
        editor.type("2")  # not saved
        editor.run("midtoken: Explain Healing at the Cursor")
        editor.wait_for(lambda: rule in " ".join(editor.notifications), True)
        editor.run("File: New Untitled Text File")
        editor.wait_for(lambda: "does not contain plaintext" in editor.status, True)
        editor.type("PASSWORD=abc")
        editor.run("midtoken: Explain Healing at the Cursor")
        refusal = "midtoken: midtoken.languages does not contain plaintext."
        editor.wait_for(lambda: refusal in editor.notifications, True)
        assert editor.terminal == ""
        editor.open(other.name)
        editor.wait_for(lambda: "does not contain go" in editor.status, True)
        editor.run("midtoken: Explain Healing at the Cursor")
        editor.wait_for(lambda: rule in editor.terminal.replace("·", " "), True)


def test_a_model_for_other_languages_is_offered_once_and_a_no_is_remembered(extensions: Path, tmp_path: Path) -> None:
    data, command = tmp_path / "data", [sys.executable, "-m", "midtoken"]
    data.mkdir(mode=0o700)
    write_command(tmp_path / "bin/midtoken", ["env", f"XDG_DATA_HOME={data}", *command])
    with _open(extensions, tmp_path, "main.go", "package main\n", "the model knows only python") as editor:
        editor.wait_for(lambda: "Download SmolLM2-135M (270 MB" in " ".join(editor.notifications), True)
        editor.act("answer", "No")
        editor.wait_for(lambda: (data / "midtoken/models/default").exists(), True)
    assert (data / "midtoken/models/default").read_text() == "bundled"
