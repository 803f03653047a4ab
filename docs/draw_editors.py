"""Pictures of VS Code with a published model and of the playground with the bundled one: `make pictures` draws them.

`python -m docs.draw_editors NAME` draws one, vscode or playground.
"""

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.corpora.real_model import REAL_FOLDER
from midtoken.installed import find_bundled_model, find_model_repository
from tests.support.playground import open_page, run_playground
from tests.support.servers import EMBEDDED, RunningServer, Served, run_server
from tests.support.vscode import install_extension, open_vscode

_PICTURES = Path(__file__).parent / "pictures"
_TEXT = """/** A last-in, first-out collection. */
export class Stack<T> {
  private readonly items: T[] = [];

  push(item: T): void {
    this.items.push(item);
  }

  isEmpty(): boolean {
    return this.items.length === 0;
  }


}"""
_TYPED = "  get size(): num"
_SUGGESTED = "return this.items.length;"  # the second line
_SETTINGS = {
    "midtoken.extent": "block",
    "editor.quickSuggestions": {"other": "off"},
    "editor.lightbulb.enabled": "off",
    "editor.suggestOnTriggerCharacters": False,
    "typescript.validate.enable": False,
    "midtoken.command": [sys.executable, "-m", "midtoken"],
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
    draw, model_dir = {
        "vscode": (_draw_vscode, REAL_FOLDER), "playground": (_draw_playground, find_bundled_model()),
    }[name]  # fmt: skip
    served = Served(model_dir, find_model_repository())
    with (
        tempfile.TemporaryDirectory() as folder,
        run_server(served, Path(folder) / "state", runtime=EMBEDDED) as server,
    ):
        draw(server, Path(folder))


def _draw_vscode(server: RunningServer, folder: Path) -> None:
    file = folder / "workspace/stack.ts"
    file.parent.mkdir()
    file.write_text(_TEXT)
    install_extension(folder / "extensions")
    settings = {**_SETTINGS, "midtoken.server": server.url}
    environment = {"XDG_STATE_HOME": str(folder)}
    with open_vscode(folder / "extensions", file.parent, file, environment, settings) as editor:
        editor.wait_for(lambda: editor.status, "midtoken: ready")
        editor.press("Control+b")  # hides the side bar
        editor.press("Control+End")
        editor.press("ArrowUp")
        editor.type(_TYPED)
        editor.wait_for(lambda: _SUGGESTED in (editor.ghost or ""), True)
        editor.act("resize", "900x502")
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
