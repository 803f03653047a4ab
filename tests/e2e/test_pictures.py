"""The picture of a suggestion of the default model in VS Code, which `make pictures` writes for the README."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.servers import RunningServer
from tests.support.vscode import MISSING, install_extension, open_vscode

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_MAX_BYTES = 200_000
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

Save = Callable[[str], Path]


@pytest.fixture(scope="session")
def save(pytestconfig: pytest.Config) -> Save:
    """A function that returns the path of a picture in the folder that `--pictures` names."""
    folder = pytestconfig.getoption("pictures")
    if folder is None:
        pytest.skip("`make pictures` draws them")
    return Path(folder).joinpath


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
