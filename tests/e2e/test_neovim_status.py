"""What Neovim tells the user about the plugin: messages, status line, :checkhealth, :help. And what it is told."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lsp_editor import WriteScript
from tests.support.neovim_editor import NODE, Edit, Editor, OpenEditor, run_neovim
from tests.support.telling_server import build_command

pytestmark = pytest.mark.e2e


def _check_health(editor: Editor) -> str:
    editor.nvim.command("silent! checkhealth midtoken")  # messages of errors are no failure of the command
    return "\n".join(editor.lines)


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Editor]:
    """A Neovim in which `setup` was not called."""
    with run_neovim(tmp_path) as editor:
        yield editor


@pytest.mark.parametrize(
    "option", ["filetypes = 'python'", "cmd = 'midtoken'", "keys = 'x'", "settings = 3", "model = true", "cmd = {}"]
)
def test_a_wrong_value_of_an_option_is_named_in_one_line(bare: Editor, option: str) -> None:
    name, _, value = option.partition(" = ")
    bare.lua(f"require('midtoken').setup({{ {option} }})")
    value = value.replace("'", '"')
    wanted = f"midtoken: the option {name} must be a {'list' if name in ('cmd', 'filetypes') else ''}"
    bare.wait_for(lambda: bare.messages.startswith(wanted), True)
    assert bare.messages.endswith(f", not {value}")
    assert "\n" not in bare.messages


def test_the_reason_for_no_suggestion_is_shown_once_and_in_the_health_report(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script(start_error="no tritonserver found").command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for(lambda: editor.messages.count("no tritonserver found"), 1)
    editor.type("e")
    time.sleep(0.5)
    assert editor.messages.count("no tritonserver found") == 1
    editor.type_and_wait("<Esc>")
    assert "ERROR no completion came: no tritonserver found" in _check_health(editor)


def test_a_missing_command_and_setup_are_named(bare: Editor) -> None:
    assert "ERROR setup was not called" in _check_health(bare)
    bare.lua("require('midtoken').setup({ cmd = { 'no-such-midtoken', 'lsp' } })")
    bare.wait_for(lambda: "midtoken: there is no command 'no-such-midtoken'" in bare.messages, True)
    assert "ERROR there is no command 'no-such-midtoken'" in _check_health(bare)


def test_the_status_says_what_the_completion_server_and_the_language_server_do(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e"]}, start_s=3).command, NODE)
    editor.wait_for(lambda: editor.status, "midtoken: starting")
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    # The error is the status until then, long enough for a slow machine to see it.
    editor.lua("local defer = vim.defer_fn; vim.defer_fn = function(run, ms) return defer(run, 4 * ms) end")
    editor.lua("for _, pid in ipairs(vim.api.nvim_get_proc_children(vim.fn.getpid())) do vim.uv.kill(pid, 9) end")
    editor.wait_for(
        lambda: editor.status.startswith("midtoken: error (the language server ended (signal 9) and is started again)"),
        True,
    )
    editor.wait_for(lambda: editor.status, "midtoken: ready")  # it is started again
    editor.type("GoNod")
    editor.wait_for_ghost("e")


@pytest.mark.parametrize("status", [0, 3])
def test_a_language_server_that_always_ends_is_started_six_times(status: int, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with run_neovim(tmp_path) as editor:
        editor.lua("local defer = vim.defer_fn; vim.defer_fn = function(run, ms) return defer(run, ms / 100) end")
        editor.lua("require('midtoken').setup(...)", {"cmd": ["sh", "-c", f"echo x >> '{starts}'; exit {status}"]})
        editor.nvim.command(f"edit {tmp_path / 'file.py'}")
        editor.wait_for(lambda: f"status {status}" in editor.status and "its log may say why" in editor.status, True)
        # That it is started again, and that it is not.
        editor.wait_for(lambda: editor.messages.count("midtoken: "), 2)
        time.sleep(0.5)
        assert (starts.read_text().count("x"), editor.messages.count("midtoken: ")) == (6, 2)


def test_the_status_is_what_the_language_server_tells(open_editor: OpenEditor, tmp_path: Path) -> None:
    editor = open_editor(build_command(tmp_path / "record"), ["", ""])
    buffer = editor.nvim.current.buffer
    for uri, state, status in [
        ("null", "starting", "starting"),
        ("null", "off", "off (this file is excluded)"),
        ("null", "error", "error (this file is excluded)"),
        ("null", "ready", "ready"),
        ('"here"', "error", "error (this file is excluded)"),
        ('"here"', "off", "off (this file is excluded)"),
    ]:
        line = f'status {{"uri": {uri}, "state": "{state}", "code": "x", "message": "this file is excluded"}}'
        buffer[0] = line
        editor.wait_for(lambda: editor.status, f"midtoken: {status}")
    assert "file.py: off (this file is excluded)" in _check_health(editor)
    editor.nvim.command("bdelete")
    buffer[0] = line.replace("off", "ready")
    editor.wait_for(lambda: editor.status, "midtoken: ready")


def test_a_message_about_a_setting_is_shown_and_is_no_state(open_editor: OpenEditor, write_script: WriteScript) -> None:
    command = write_script().command
    editor = open_editor(command, [""])
    editor.lua("require('midtoken').setup(...)", {"cmd": list(command), "settings": {"maxTokenz": 1}})
    editor.wait_for(lambda: "unknown setting 'maxTokenz'" in editor.messages, True)
    editor.wait_for(lambda: editor.status, "midtoken: ready")


def test_several_suggestions_are_asked_for_when_the_next_one_is_wanted(open_editor: OpenEditor, tmp_path: Path) -> None:
    record = tmp_path / "record"
    editor = open_editor(build_command(record), ["f"])
    editor.type("A")
    editor.wait_for_ghost("(one 😀)")
    assert "invoked" not in record.read_text()
    for key, ghost in [("<M-n>", "(two)"), ("<M-n>", "[three]"), ("<M-n>", "(one 😀)"), ("<M-p>", "[three]")]:
        editor.type(key)
        editor.wait_for_ghost(ghost)
    assert record.read_text().count("invoked") == 1
    editor.lua("for _, pid in ipairs(vim.api.nvim_get_proc_children(vim.fn.getpid())) do vim.uv.kill(pid, 19) end")
    editor.type_and_wait("(")
    for ghost in ("two)", "one 😀)"):  # those that agree with the typed text
        editor.type_and_wait("<M-n>")
        assert editor.ghost == ghost
    editor.type_and_wait("<Tab>")
    assert editor.lines == ["f(one 😀)"]
    editor.lua("for _, pid in ipairs(vim.api.nvim_get_proc_children(vim.fn.getpid())) do vim.uv.kill(pid, 18) end")


def test_several_suggestions_that_come_late_are_shown_all_the_same(open_editor: OpenEditor, tmp_path: Path) -> None:
    editor = open_editor(build_command(tmp_path / "record"), ["slow", "f"])
    editor.type("GA")
    editor.wait_for_ghost("(one 😀)")
    editor.type("<M-n>")
    editor.wait_for_ghost("(two)")


def test_a_key_asks_by_hand_where_nothing_is_shown(open_editor: OpenEditor, tmp_path: Path) -> None:
    record = tmp_path / "record"
    editor = open_editor(build_command(record), ["unlikely", "f"])
    editor.type("GA")
    editor.wait_for(lambda: record.exists() and record.read_text(), "automatic\n")
    editor.type("<M-a>")
    editor.wait_for_ghost("(one 😀)")
    editor.type_and_wait("<Tab>")
    assert editor.lines == ["unlikely", "f(one 😀)"]


def test_file_types_are_those_that_are_listed_or_else_all_that_the_model_knows(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script().command, [""])
    editor.nvim.command("set filetype=rust")
    editor.wait_for(lambda: editor.status, "midtoken: ready")
    editor.nvim.command("edit .")  # a list of files is no text
    assert editor.status == "midtoken: off (the language server is not attached)"
    editor.nvim.command("buffer #")
    editor.lua("require('midtoken').setup({ filetypes = { 'python' } })")
    assert editor.status == "midtoken: off (file type 'rust' is not in the option filetypes)"
    editor.lua("require('midtoken').setup({ settings = { enabled = false } })")
    assert editor.status == "midtoken: off (settings.enabled is false)"


def test_checkhealth_reports_each_part_and_a_completion(edit: Edit) -> None:
    editor = edit([""])
    report = _check_health(editor)
    for part in ("OK Neovim 0.", "OK command ", "attached to 1 buffers", "OK a completion came after", '"first"'):
        assert part in report
    assert "ERROR" not in report + editor.messages


def test_an_older_neovim_is_told_what_it_needs_and_nothing_is_changed(bare: Editor) -> None:
    bare.lua("local has = vim.fn.has; vim.fn.has = function(x) return x == 'nvim-0.10' and 0 or has(x) end")
    find = "return vim.inspect({ vim.api.nvim_get_commands({}), vim.api.nvim_get_autocmds({}) })"
    before = bare.lua(find)
    bare.lua("require('midtoken').setup()")
    bare.wait_for(lambda: "midtoken: Neovim 0.10 or later is needed" in bare.messages, True)
    assert bare.lua(find) == before
    assert "ERROR this Neovim is too old" in _check_health(bare)
