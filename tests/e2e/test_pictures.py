"""Pictures of suggestions of the default model in real editors. `make pictures` writes those of the README."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.helix_editor import run_helix
from tests.support.neovim_editor import PLUGIN, find_neovim
from tests.support.servers import RunningServer, wait_until
from tests.support.terminal import Terminal, shows
from tests.support.vscode import MISSING, install_extension, open_vscode

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_MAX_BYTES = 200_000
_SIZE = (22, 80)
_TEXT = '''class Stack:
    """A last-in, first-out collection."""

    def __init__(self):
        self._items = []

    def push(self, item):
        self._items.append(item)

    def is_empty(self):
        return not self._items

'''
_TYPED = "    def __len__(sel"
_SUGGESTED = "return len(self._items)"  # the second line
_NEOVIM_SETTINGS = """
vim.opt.runtimepath:append({plugin!r})
vim.o.termguicolors, vim.o.background, vim.o.number, vim.o.cursorline = true, 'dark', true, true
vim.o.swapfile, vim.o.shortmess = false, 'filnxtToOFI'
vim.o.statusline = "%f %m%=%{{v:lua.require'midtoken'.status()}}  %l:%c "
vim.api.nvim_set_hl(0, 'MidtokenSuggestion', {{ fg = '#8b909a', italic = true }})
require('midtoken').setup({{ cmd = {{ {command} }}, settings = {{ extent = 'block' }} }})
"""
_HELIX_SETTINGS = """theme = "dark_plus"
[editor]
idle-timeout = 20
completion-timeout = 20
completion-trigger-len = 1
auto-pairs = false
true-color = true
[editor.cursor-shape]
insert = "block"
"""
_HELIX_SERVER = 'config = { extent = "block" }'

Save = Callable[[str], Path]


@pytest.fixture(scope="session")
def save(pytestconfig: pytest.Config) -> Save:
    """A function that returns the path of a picture in the folder that `--pictures` names."""
    folder = pytestconfig.getoption("pictures")
    if folder is None:
        pytest.skip("`make pictures` draws them")
    return Path(folder).joinpath


def _list_command(server: RunningServer) -> list[str]:
    return [sys.executable, "-m", "midtoken", "lsp", "--server", server.url]


@contextmanager
def _show_neovim(arguments: list[str], environment: Mapping[str, str], folder: Path) -> Iterator[Terminal]:
    """Runs Neovim and its screen as two processes: unpacked beside the system, it cannot start itself again."""
    command = [find_neovim(), "--headless", "--listen", str(folder / "socket"), *arguments]
    with subprocess.Popen(command, env=environment, cwd=folder) as neovim:
        wait_until((folder / "socket").exists)
        remote = [find_neovim(), "--server", str(folder / "socket"), "--remote-ui"]
        try:
            with Terminal(remote, environment, str(folder), _SIZE) as terminal:
                yield terminal
        finally:
            neovim.terminate()


def _type_until_all_is_shown(terminal: Terminal, shown: str = _SUGGESTED) -> None:
    """The first request may come before the language server is ready. The rest of a block comes with the next key."""
    terminal.type(_TYPED[:-1])
    for _ in range(20):
        time.sleep(1)
        terminal.type(_TYPED[-1])
        time.sleep(1)
        if shows(shown)(terminal.lines):
            return
        terminal.type("\x7f")
    raise AssertionError("\n".join(terminal.lines))


def test_neovim(save: Save, real_server: RunningServer, tmp_path: Path) -> None:
    file, settings = tmp_path / "stack.py", tmp_path / "init.lua"
    file.write_text(_TEXT)
    command = ", ".join(repr(argument) for argument in _list_command(real_server))
    settings.write_text(_NEOVIM_SETTINGS.format(plugin=str(PLUGIN), command=command))
    environment = {"HOME": str(tmp_path), "TERM": "xterm-256color", "COLORTERM": "truecolor", "PATH": "/usr/bin:/bin"}
    with _show_neovim(["-u", str(settings), "stack.py"], environment, tmp_path) as terminal:
        terminal.wait_for(shows("midtoken: ready"))
        terminal.type("Go")
        _type_until_all_is_shown(terminal)
        terminal.draw(save("neovim.png"))
    assert save("neovim.png").stat().st_size < _MAX_BYTES


def test_helix(save: Save, real_server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "stack.py"
    file.write_text(_TEXT)
    command = _list_command(real_server)
    with run_helix(tmp_path, Path(file.name), command, _HELIX_SETTINGS, _HELIX_SERVER, tmp_path, (26, 104)) as terminal:
        terminal.wait_for(shows("NOR"))
        terminal.type("geo")
        _type_until_all_is_shown(terminal, "self): …")
        terminal.type("\t")  # Helix shows what the selected entry inserts
        terminal.wait_for(shows(_SUGGESTED))
        terminal.draw(save("helix.png"))
    assert save("helix.png").stat().st_size < _MAX_BYTES


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_vscode(save: Save, real_server: RunningServer, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    file = workspace / "stack.py"
    file.write_text(_TEXT)
    install_extension(tmp_path / "extensions")
    settings = {
        "midtoken.command": [sys.executable, "-m", "midtoken"],
        "midtoken.server": real_server.url,
        "midtoken.extent": "block",
        "workbench.activityBar.location": "hidden",
        "window.commandCenter": False,
        "workbench.layoutControl.enabled": False,
        "breadcrumbs.enabled": False,
        "workbench.colorTheme": "Default Dark Modern",
        "remote.autoForwardPorts": False,
        "editor.fontSize": 16,
        "editor.scrollbar.vertical": "hidden",
        "editor.hideCursorInOverviewRuler": True,
        "editor.overviewRulerBorder": False,
    }
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    with open_vscode(tmp_path / "extensions", workspace, file, environment, settings) as editor:
        editor.wait_for(lambda: editor.status, "midtoken: ready")
        editor.press("Control+b")  # hides the side bar
        editor.press("Control+End")
        editor.type(_TYPED[:-1])
        editor.wait_for(lambda: "lf):" in (editor.ghost or ""), True)
        while _SUGGESTED not in (editor.ghost or ""):  # VS Code keeps a suggestion that still fits
            editor.press("Escape")
            editor.press("Backspace")
            editor.type(_TYPED[-2])
        editor.press("Escape")
        editor.type(_TYPED[-1])
        editor.wait_for(lambda: _SUGGESTED in (editor.ghost or ""), True)
        editor.act("resize", "900x480")
        editor.picture(save("vscode.png"))
    assert save("vscode.png").stat().st_size < _MAX_BYTES
