"""A real Neovim with the plugin in editors/neovim, and what it shows."""

import asyncio
import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pynvim
import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "editors/neovim"
_CLOSING_S = 0.05  # in which the pipes of a process that has ended are closed
NODE = ["class Node:", "    def __init__(self, value):", "        self.value = value", "", "", "def first():"]

# The answers of the scripted model that the tests of one file share.
RULES: Sequence[dict[str, Any]] = [
    {"ends_with": "Nod", "texts": ["e(value, x)"]},
    {"ends_with": "slow", "texts": ["never"], "delay_s": 60},
    {"ends_with": "END", "texts": ["!"]},
    {"ends_with": "f()", "texts": ["(one)"]},
    {"ends_with": "return fir", "texts": ["st"]},
    {"ends_with": "(sel", "texts": ["f): pass"]},
    {"ends_with": "def s(a):", "texts": ["\n    one(a)\n    two(a)\n    three(a)\n"]},
    {"ends_with": "if long", "texts": [f":\n    {90 * 'y'}"]},
]


class Editor:
    """A running Neovim, and what it shows."""

    def __init__(self, nvim: pynvim.Nvim) -> None:
        self.nvim = nvim
        self._num_batches = itertools.count(1)

    def type(self, keys: str) -> None:
        self.nvim.input(keys)

    def type_and_wait(self, keys: str) -> None:
        """Types keys in one batch, and returns when Neovim has executed them. Nothing else happens in between."""
        number = next(self._num_batches)
        for mode in "ni":
            self.nvim.api.set_keymap(mode, "<F12>", f"<Cmd>let g:typed_batch = {number}<CR>", {})
        self.nvim.input(keys + "<F12>")
        self.wait_for(lambda: self.nvim.vars.get("typed_batch"), number)

    def lua(self, code: str, *arguments: Any) -> Any:
        return self.nvim.exec_lua(code, *arguments)

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
        namespace = self.nvim.api.create_namespace("midtoken")
        marks = self.nvim.current.buffer.api.get_extmarks(namespace, 0, -1, {"details": True})
        if not marks:
            return None
        # What lies over the replaced text, what follows it, and the other lines. Mere blanks have no group.
        details = [mark[3] for mark in marks]
        lines = [[chunk for each in details for chunk in each["virt_text"]], *details[-1].get("virt_lines", [])]
        return "\n".join("".join(chunk[0] for chunk in line if len(chunk) == 2) for line in lines)

    @property
    def ghost_place(self) -> tuple[int, int]:
        namespace = self.nvim.api.create_namespace("midtoken")
        row, column = self.nvim.current.buffer.api.get_extmarks(namespace, 0, -1, {})[0][1:3]
        return row, column

    @property
    def lines(self) -> list[str]:
        return list(self.nvim.current.buffer[:])

    @property
    def status(self) -> str:
        """The text for the status line."""
        return str(self.lua("return require('midtoken').status()"))

    @property
    def messages(self) -> str:
        return str(self.nvim.command_output("messages"))


Edit = Callable[[Sequence[str]], Editor]


class OpenEditor(Protocol):
    """The type of a function that opens a file with the given lines in Neovim, with the given language server."""

    def __call__(self, command: Sequence[str], lines: Sequence[str], **options: Any) -> Editor: ...


def find_neovim(name: str = "nvim") -> str:
    """Returns the program `nvim`, or `nvim-older`. Fails the test if it is missing."""
    binary = os.environ.get(f"MIDTOKEN_{name.upper().replace('-', '_')}") or str(ROOT / "build/editors" / name)
    if shutil.which(binary) is None:
        pytest.fail(f"{binary} is missing; `make build/editors/{name}` fetches it")
    return binary


@contextmanager
def run_neovim(folder: Path, *arguments: str, program: str = "nvim") -> Iterator[Editor]:
    """Starts Neovim without any configuration but the plugin on its path; it writes only to `folder`.

    With arguments, it starts as they say, on a screen of 60 columns.
    """
    environment = ["env", f"XDG_STATE_HOME={folder}", f"XDG_DATA_HOME={folder}", f"XDG_CONFIG_HOME={folder}"]
    command = [*environment, find_neovim(program), "--embed", "-n", *(arguments or ("--headless", "--clean"))]
    nvim = pynvim.attach("child", argv=command)
    try:
        if arguments:
            nvim.ui_attach(60, 20, rgb=True)
        else:
            nvim.command(f"set runtimepath+={PLUGIN}")
            nvim.command(f"cd {ROOT}")
        yield Editor(nvim)
    finally:
        with contextlib.suppress(EOFError, OSError):  # Neovim ends before it answers
            nvim.input("<C-c>")
            nvim.command("qall!")
        nvim.loop.run_until_complete(asyncio.sleep(_CLOSING_S))  # else `close` leaves its pipes open
        nvim.close()


def open_file(editor: Editor, file: Path, lines: Sequence[str], end: str = "\n") -> None:
    """Writes the lines to a file and opens it. Returns when the plugin follows the typed keys."""
    file.write_text("".join(line + end for line in lines), newline="")
    editor.nvim.command(f"edit {file}")
    # Neovim attaches the client shortly before it reacts to typed keys.
    listening = "return #vim.api.nvim_get_autocmds({ event = 'CursorMovedI', buffer = 0 }) > 0"
    editor.wait_for(lambda: editor.lua(listening), True)
