"""What the user sees in a real Neovim 0.12 with the plugin in editors/neovim."""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pynvim
import pytest

from tests.support.lsp_editor import WriteScript
from tests.support.servers import RunningServer

pytestmark = pytest.mark.e2e

_ROOT = Path(__file__).parents[2]
_NODE = ["class Node:", "    def __init__(self, value):", "        self.value = value", "", "", "def first():"]


class Editor:
    """A running Neovim, and what it shows."""

    def __init__(self, nvim: pynvim.Nvim) -> None:
        self.nvim = nvim

    def type(self, keys: str) -> None:
        self.nvim.input(keys)

    def wait_for_ghost(self, text: str, within_s: float = 20.0) -> None:
        """Waits until the ghost text is `text`. Fails with the actual ghost text; lines are joined by line feeds."""
        self.wait_for(lambda: self.ghost, text, within_s)

    def wait_for(self, find: Callable[[], Any], wanted: Any, within_s: float = 20.0) -> None:
        deadline_s = time.monotonic() + within_s
        while (found := find()) != wanted:
            assert time.monotonic() < deadline_s, f"{found!r} instead of {wanted!r}"
            time.sleep(0.02)

    @property
    def ghost(self) -> str | None:
        namespace = self.nvim.api.create_namespace("nvim.lsp.inline_completion")
        marks = self.nvim.current.buffer.api.get_extmarks(namespace, 0, -1, {"details": True})
        if not marks:
            return None
        details = marks[0][3]
        lines = [details["virt_text"], *details.get("virt_lines", [])]
        return "\n".join("".join(text for text, _ in line) for line in lines)

    @property
    def ghost_place(self) -> tuple[int, int]:
        namespace = self.nvim.api.create_namespace("nvim.lsp.inline_completion")
        row, column = self.nvim.current.buffer.api.get_extmarks(namespace, 0, -1, {})[0][1:3]
        return row, column

    @property
    def lines(self) -> list[str]:
        return list(self.nvim.current.buffer[:])

    @property
    def messages(self) -> str:
        return str(self.nvim.command_output("messages"))


OpenEditor = Callable[[Sequence[str], Sequence[str]], Editor]


@pytest.fixture
def open_editor(tmp_path: Path) -> Iterator[OpenEditor]:
    """A function that opens a Python file with the given lines in Neovim, with the given language server command."""
    binary = os.environ.get("MIDTOKEN_NVIM") or str(_ROOT / "build/editors/nvim")
    if shutil.which(binary) is None:
        pytest.fail(f"{binary} is missing; `make build/editors/nvim` fetches it")
    opened = []

    def open_editor(command: Sequence[str], lines: Sequence[str]) -> Editor:
        file = tmp_path / "file.py"
        file.write_text("\n".join(lines) + "\n")
        environment = ["env", f"XDG_STATE_HOME={tmp_path}", f"XDG_DATA_HOME={tmp_path}", f"XDG_CONFIG_HOME={tmp_path}"]
        nvim = pynvim.attach("child", argv=[*environment, binary, "--embed", "--headless", "--clean", "-n"])
        opened.append(nvim)
        nvim.command(f"set runtimepath+={_ROOT / 'editors/neovim'}")
        nvim.command(f"cd {_ROOT}")
        nvim.exec_lua("require('midtoken').setup({ cmd = ... })", list(command))
        nvim.command(f"edit {file}")
        editor = Editor(nvim)
        # Neovim attaches the client shortly before it reacts to typed keys.
        listening = "return #vim.api.nvim_get_autocmds({ event = 'CursorMovedI', buffer = 0 }) > 0"
        editor.wait_for(lambda: nvim.exec_lua(listening), True)
        return editor

    yield open_editor
    for nvim in opened:
        with contextlib.suppress(EOFError, OSError):  # Neovim ends before it answers
            nvim.command("qall!")
        nvim.close()


def test_the_rest_of_the_word_is_shown_after_the_cursor(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script({"ends_with": "return Nod", "texts": ["e"]}).command, _NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e")
    assert editor.ghost_place == (len(_NODE), len("    return Nod"))


def test_the_default_model_completes_the_typed_name(open_editor: OpenEditor, real_server: RunningServer) -> None:
    command = [sys.executable, "-m", "midtoken", "lsp", "--server", real_server.endpoint.grpc_url]
    editor = open_editor(command, _NODE)
    editor.type("Goreturn Nod")
    editor.wait_for(lambda: (editor.ghost or "")[:1], "e")


def test_tab_accepts_the_suggestion(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script({"ends_with": "return Nod", "texts": ["e(value)"]}).command, _NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(value)")
    editor.type("<Tab>")
    editor.wait_for(lambda: editor.lines[-1], "    return Node(value)")
    editor.type("<Esc>")
    assert editor.nvim.current.window.cursor[1] == len("    return Node(value)") - 1


def test_tab_inserts_a_tab_if_no_suggestion_is_shown(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script().command, _NODE)
    editor.type(":set noexpandtab<CR>Gox<Tab>")
    editor.wait_for(lambda: editor.lines[-1].lstrip(), "x\t")


def test_matching_letters_typed_just_before_tab_are_part_of_the_accepted_text(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e(value)"]}).command, _NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(value)")
    editor.type("e(<Tab>")  # one batch of keys, so that no request is sent in between
    editor.wait_for(lambda: editor.lines[-1], "    return Node(value)")


def test_after_a_mismatching_letter_tab_keeps_the_typed_text(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e(value)"]}).command, _NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(value)")
    editor.type("x<Tab>")
    editor.type("y")
    editor.wait_for(lambda: editor.lines[-1], "    return Nodxy")


def test_the_ghost_text_shrinks_as_it_is_typed_with_one_generation(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e(value)"]})
    editor = open_editor(script.command, _NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e(value)")
    for letter, ghost in zip("e(v", ("(value)", "value)", "alue)"), strict=True):
        editor.type(letter)
        editor.wait_for_ghost(ghost)
        time.sleep(0.3)  # Neovim asks again 200 ms after the letter
        assert editor.ghost == ghost
    assert [event["prefix"].rpartition(" ")[2] for event in script.events if event["event"] == "started"] == ["Nod"]


def test_inside_brackets_the_text_is_inserted_before_the_closing_bracket(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    editor = open_editor(write_script({"ends_with": "print(na", "texts": ["me)"]}).command, ["print()"])
    editor.type("f)ina")
    editor.wait_for_ghost("me")
    editor.type("m<Tab>")
    editor.wait_for(lambda: editor.lines, ["print(name)"])


def test_a_block_replaces_the_closing_bracket(open_editor: OpenEditor, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "def f(", "texts": ["self):\n    pass"]})
    editor = open_editor(script.command, ["def f)"])
    editor.type("f)i(")
    editor.wait_for_ghost("self):")
    editor.type("se<Tab>")
    editor.wait_for(lambda: editor.lines, ["def f(self):"])
    editor.wait_for_ghost("\n    pass")
    assert script.count("started") == 1


def test_after_the_first_line_is_accepted_the_other_lines_are_shown(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    script = write_script(
        {"ends_with": "if x:", "texts": ["\n    a = 1\n", "    b = 2\n", "    c = 3"], "delay_s": 0.1}
    )
    editor = open_editor(script.command, [""])
    editor.type("iif x:")
    editor.wait_for_ghost("\n    a = 1")
    editor.type("<Tab>")
    editor.wait_for_ghost("\n    b = 2\n    c = 3")
    editor.type("<Tab>")
    editor.wait_for(lambda: editor.lines, ["if x:", "    a = 1", "    b = 2", "    c = 3"])


def test_the_sent_text_is_the_text_in_the_buffer(open_editor: OpenEditor, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "END", "texts": ["!"]})
    editor = open_editor(script.command, ["one 😀 two", "", "thrée", "four", "\tfive\x0c six"])
    for keys in ("ggdd", "u", "jjyyp", ":%s/o/00/g<CR>", "u", "<C-r>", "ggVGd", "u", "Gdd", "ggJx", ":2,3move 0<CR>"):
        editor.type("<Esc>" + keys)
    editor.type("<Esc>GAEND")
    editor.wait_for_ghost("!")
    assert script.events[-1]["prefix"] == "\n".join(editor.lines)


def test_leaving_insert_mode_hides_the_ghost_text_and_cancels_the_generation(
    open_editor: OpenEditor, write_script: WriteScript
) -> None:
    slow = {"ends_with": "Nodx", "texts": ["never"], "delay_s": 60}
    script = write_script({"ends_with": "Nod", "texts": ["e"]}, slow)
    editor = open_editor(script.command, _NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e")
    editor.type("x")
    editor.wait_for(lambda: script.count("started"), 2)
    editor.type("<Esc>")
    editor.wait_for(lambda: (editor.ghost, script.count("cancelled")), (None, 1))


def test_the_language_server_ends_with_neovim(open_editor: OpenEditor, write_script: WriteScript) -> None:
    script = write_script({"ends_with": "Nod", "texts": ["e"]})
    editor = open_editor(script.command, _NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e")
    editor.nvim.command("qall!", async_=True)
    editor.wait_for(lambda: script.count("closed"), 1)


def test_the_reason_for_no_suggestion_is_shown_once(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script(start_error="no tritonserver found").command, _NODE)
    editor.type("Goreturn Nod")
    editor.wait_for(lambda: editor.messages.count("no tritonserver found"), 1)
    editor.type("e")
    time.sleep(0.5)  # Neovim asks again 200 ms after the letter
    assert editor.messages.count("no tritonserver found") == 1


def test_no_message_is_shown_if_all_is_well(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script({"ends_with": "Nod", "texts": ["e"]}).command, _NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e")
    assert "midtoken" not in editor.messages


def test_a_missing_command_is_named(open_editor: OpenEditor, write_script: WriteScript) -> None:
    editor = open_editor(write_script().command, _NODE)
    assert "there is no command" not in editor.messages

    editor.nvim.exec_lua("require('midtoken').setup({ cmd = { 'no-such-midtoken', 'lsp' } })")

    assert "midtoken: there is no command 'no-such-midtoken'" in editor.messages
