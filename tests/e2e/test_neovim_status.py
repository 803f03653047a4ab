"""What Neovim tells the user about the plugin: messages, status line, :checkhealth, :help."""

import shutil
import time
from pathlib import Path

import pytest

from tests.support.lsp_editor import WriteScript
from tests.support.neovim_editor import NODE, PLUGIN, Editor, OpenEditor, run_neovim

pytestmark = pytest.mark.e2e


def _read_status(editor: Editor) -> str:
    return str(editor.lua("return require('midtoken').status()"))


def _check_health(editor: Editor) -> str:
    editor.nvim.command("silent! checkhealth midtoken")  # messages of errors are no failure of the command
    return "\n".join(editor.lines)


def test_the_reason_for_no_suggestion_is_shown_once(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script(start_error="no tritonserver found").command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for(lambda: editor.messages.count("no tritonserver found"), 1)
    editor.type("e")
    time.sleep(0.5)  # Neovim asks again 200 ms after the letter
    assert editor.messages.count("no tritonserver found") == 1


def test_no_message_is_shown_if_all_is_well(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e"]}).command, NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e")
    assert "midtoken" not in editor.messages


def test_a_missing_command_is_named(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script().command, NODE)
    assert "there is no command" not in editor.messages

    editor.nvim.exec_lua("require('midtoken').setup({ cmd = { 'no-such-midtoken', 'lsp' } })")

    assert "midtoken: there is no command 'no-such-midtoken'" in editor.messages


def test_the_status_says_that_the_completion_server_starts_and_then_that_it_is_ready(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script(start_s=1.5).command, NODE)
    editor.wait_for(lambda: _read_status(editor), "midtoken: starting")
    editor.wait_for(lambda: _read_status(editor), "midtoken: ready")


def test_the_status_shows_an_error_until_a_completion_arrives(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e"]}).command, [""], settings={"maxTokens": "x"})
    editor.wait_for(lambda: _read_status(editor).startswith("midtoken: error (setting maxTokens must be"), True)
    editor.type("iNod")
    editor.wait_for_ghost("e")
    assert _read_status(editor) == "midtoken: ready"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("MidtokenDisable", "disabled in this buffer"),
        ("MidtokenDisable!", "disabled everywhere"),
    ],
)
def test_the_status_says_why_suggestions_are_off(
    open_editor: OpenEditor, write_script: WriteScript, command: str, reason: str
) -> None:
    editor = open_editor(write_script().command, [""])
    editor.nvim.command(command)
    assert _read_status(editor) == f"midtoken: off ({reason})"


def test_file_types_are_those_that_are_listed_or_else_all_that_the_model_knows(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script().command, [""])
    editor.nvim.command("set filetype=rust")
    editor.wait_for(lambda: _read_status(editor), "midtoken: ready")
    editor.nvim.command("edit .")  # a list of files is no text
    assert _read_status(editor) == "midtoken: off (the language server is not attached)"
    editor.nvim.command("buffer #")
    editor.lua("require('midtoken').setup({ filetypes = { 'python' } })")
    assert _read_status(editor) == "midtoken: off (file type 'rust' is not in the option filetypes)"


def test_the_status_says_that_the_settings_switch_suggestions_off(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script().command, [""], settings={"enabled": False})
    assert _read_status(editor) == "midtoken: off (settings.enabled is false)"


def test_the_status_says_that_the_language_server_has_ended(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script().command, [""])
    editor.wait_for(lambda: _read_status(editor), "midtoken: ready")
    editor.lua("for _, pid in ipairs(vim.api.nvim_get_proc_children(vim.fn.getpid())) do vim.uv.kill(pid, 9) end")
    editor.wait_for(lambda: _read_status(editor).startswith("midtoken: error (the language server ended"), True)


def test_checkhealth_reports_each_part_and_a_completion(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script({"ends_with": "return fir", "texts": ["st"]}).command, [""])
    report = _check_health(editor)
    for part in ("OK Neovim 0.12", "OK command ", "attached to 1 buffers", "OK a completion came after"):
        assert part in report
    assert '"first"' in report
    assert "ERROR" not in report + editor.messages


def test_checkhealth_starts_the_language_server_if_no_file_is_open(tmp_path: Path, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "return fir", "texts": ["st"]})
    with run_neovim(tmp_path) as editor:
        editor.lua("require('midtoken').setup(...)", {"cmd": script.command})
        report = _check_health(editor)
        assert "It was started for this check" in report
        assert "OK a completion came after" in report
        editor.wait_for(lambda: script.count("closed"), 1)


def test_checkhealth_says_why_no_completion_comes(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script(start_error="no tritonserver found").command, [""])
    assert "ERROR no completion came: no tritonserver found" in _check_health(editor)


def test_checkhealth_says_what_is_missing(tmp_path: Path) -> None:
    with run_neovim(tmp_path) as editor:
        assert "ERROR setup was not called" in _check_health(editor)
        editor.lua("require('midtoken').setup({ cmd = { 'no-such-midtoken' } })")
        assert "ERROR there is no command 'no-such-midtoken'" in _check_health(editor)


def test_an_older_neovim_is_told_what_it_needs_and_nothing_is_changed(tmp_path: Path) -> None:
    with run_neovim(tmp_path) as editor:
        editor.lua("local has = vim.fn.has; vim.fn.has = function(x) return x == 'nvim-0.12' and 0 or has(x) end")
        find = "return vim.inspect({ vim.api.nvim_get_commands({}), vim.api.nvim_get_autocmds({}) })"
        before = editor.lua(find)
        editor.lua("require('midtoken').setup()")
        assert "midtoken: Neovim 0.12 or newer is needed" in editor.messages
        assert editor.lua(find) == before
        assert "ERROR this Neovim is too old" in _check_health(editor)


def test_the_highlight_group_is_neovims_own_until_the_user_sets_it(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script().command, [""])
    find = "return vim.api.nvim_get_hl(0, { name = 'MidtokenSuggestion' })"
    assert editor.lua(find)["link"] == "ComplHint"
    editor.nvim.command("colorscheme default")
    assert editor.lua(find)["link"] == "ComplHint"
    editor.nvim.command("highlight MidtokenSuggestion gui=italic")
    editor.lua("require('midtoken').setup()")
    assert "link" not in editor.lua(find)


def test_the_help_has_a_tag_for_each_function_command_key_and_option(tmp_path: Path) -> None:
    shutil.copytree(PLUGIN / "doc", tmp_path / "plugin/doc")
    with run_neovim(tmp_path) as editor:
        editor.nvim.command(f"set runtimepath-={PLUGIN}")
        editor.nvim.command(f"set runtimepath+={tmp_path / 'plugin'}")
        editor.nvim.command(f"helptags {tmp_path / 'plugin/doc'}")  # raises an error for a tag that is there twice
        functions = [name for name in _list_functions(editor) if name != "setup"]
        names = [f"midtoken.{name}()" for name in functions]
        names += ["midtoken.setup()", ":MidtokenEnable", ":MidtokenDisable", ":MidtokenToggle", "hl-MidtokenSuggestion"]
        names += [f"midtoken-option-{name}" for name in _list_options(editor)]
        for name in names:
            editor.nvim.command(f"noautocmd help {name}")  # raises an error if there is none
            assert Path(editor.nvim.current.buffer.name).name == "midtoken.txt", name
        lines = (PLUGIN / "doc/midtoken.txt").read_text().splitlines()
        assert max(len(line) for line in lines) <= 78


def _list_functions(editor: Editor) -> list[str]:
    editor.nvim.command(f"set runtimepath+={PLUGIN}")
    names: list[str] = editor.lua("return vim.tbl_keys(require('midtoken'))")
    return names


def _list_options(editor: Editor) -> list[str]:
    names: list[str] = editor.lua("return vim.tbl_keys(require('midtoken.options').set({}))")
    return names
