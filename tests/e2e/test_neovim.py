"""What a person sees in a real Neovim 0.12 with the plugin in editors/neovim."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pynvim
import pytest

pytestmark = pytest.mark.e2e

_ROOT = Path(__file__).parents[2]
_NODE = ["class Node:", "    def __init__(self, value):", "        self.value = value", "", "", "def first():"]


class Editor:
    """A Neovim and what it shows."""

    def __init__(self, nvim: pynvim.Nvim) -> None:
        self.nvim = nvim

    def type(self, keys: str) -> None:
        self.nvim.input(keys)

    def wait_for_ghost(self, text: str, within_s: float = 20.0) -> None:
        """Waits until the ghost text is `text`, its lines joined; fails with what there was instead."""
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
        return tuple(self.nvim.current.buffer.api.get_extmarks(namespace, 0, -1, {})[0][1:3])

    @property
    def lines(self) -> list[str]:
        return list(self.nvim.current.buffer[:])

    @property
    def messages(self) -> str:
        return self.nvim.command_output("messages")


OpenEditor = Callable[[Sequence[str], Sequence[str]], Editor]


@pytest.fixture
def open_editor(tmp_path: Path) -> Iterator[OpenEditor]:
    """A function that opens a Python file of some lines, with a language server by its command."""
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
        attached = "return #vim.lsp.get_clients({ bufnr = 0, method = 'textDocument/inlineCompletion' })"
        editor.wait_for(lambda: nvim.exec_lua(attached), 1)
        return editor

    yield open_editor
    for nvim in opened:
        nvim.command("qall!", async_=True)
        nvim.close()


def test_the_rest_of_the_word_stands_behind_the_cursor(open_editor: OpenEditor, write_script: Any) -> None:
    editor = open_editor(write_script({"ends_with": "return Nod", "texts": ["e"]}).command, _NODE)
    editor.type("Goreturn Nod")
    editor.wait_for_ghost("e")
    assert editor.ghost_place == (len(_NODE), len("    return Nod"))
