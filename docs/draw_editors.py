"""Pictures of VS Code and of the playground with suggestions of the default model: `make pictures` draws them.

`python -m docs.draw_editors NAME` draws one, vscode or playground.
"""

import sys
import tempfile
import time
from pathlib import Path

from tests.support.playground import open_page, run_playground
from tests.support.servers import RunningServer, find_real, run_server
from tests.support.vscode import install_extension, open_vscode

_PICTURES = Path(__file__).parent / "pictures"
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
_SETTINGS = {
    "midtoken.command": [sys.executable, "-m", "midtoken"],
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


def main() -> None:
    [name] = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, run_server(find_real(), Path(folder) / "state") as server:
        {"vscode": _draw_vscode, "playground": _draw_playground}[name](server, Path(folder))


def _draw_vscode(server: RunningServer, folder: Path) -> None:
    file = folder / "workspace/stack.py"
    file.parent.mkdir()
    file.write_text(_TEXT)
    install_extension(folder / "extensions")
    settings = {**_SETTINGS, "midtoken.server": server.url}
    environment = {"XDG_STATE_HOME": str(folder)}
    with open_vscode(folder / "extensions", file.parent, file, environment, settings) as editor:
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
        editor.picture(_PICTURES / "vscode.png")


def _draw_playground(server: RunningServer, _folder: Path) -> None:
    with run_playground(f"--server={server.url}") as playground, open_page(playground.url) as page:
        page.wait_for_pictures()
        page.open(playground.url)  # the times of the first picture are those of a server that was just started
        page.wait_for(lambda: page.ghost is not None, True)
        page.wait_for_pictures()
        time.sleep(1.0)  # until nothing moves
        page.picture(_PICTURES / "playground.png")


if __name__ == "__main__":
    main()
