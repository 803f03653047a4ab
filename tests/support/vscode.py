"""A real VS Code with the extension in editors/vscode: code-server, and a headless Chromium that shows it."""

import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.support.browser import ROOT, Page, name_missing, read_lines, run_driver, run_program

# code-server would ask a public gallery for its extensions, and put the environment of a login shell over the test's.
_ALONE = {"EXTENSIONS_GALLERY": '{"serviceUrl": "http://127.0.0.1:9"}', "VSCODE_CLI": "1"}
_CODE_SERVER = ROOT / "build/editors/code-server/code-server"
_VSIX = ROOT / "build/editors/midtoken.vsix"
MISSING = name_missing(_CODE_SERVER, _VSIX, ROOT / "editors/vscode/node_modules/puppeteer-core", target="test-vscode")

# So that nothing but the extension shows text, and nothing covers the editor.
_USER_SETTINGS: Mapping[str, Any] = {
    "chat.disableAIFeatures": True,
    "editor.minimap.enabled": False,
    "editor.wordBasedSuggestions": "off",
    "files.autoSave": "off",
    "files.simpleDialog.enable": True,
    "telemetry.telemetryLevel": "off",
    "terminal.integrated.gpuAcceleration": "off",  # so that the terminal's text is in the page
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
}


def install_extension(extensions: Path) -> None:
    """Installs the built extension into a folder of extensions."""
    user = extensions.parent / "installer"  # otherwise code-server writes its configuration into the home folder
    folders = ("--user-data-dir", user, "--config", user / "config.yaml", "--extensions-dir", extensions)
    subprocess.run([_CODE_SERVER, *folders, "--install-extension", _VSIX], check=True, capture_output=True)


def write_command(path: Path, command: Sequence[str], *last: str) -> None:
    """Writes a program that runs a command in the source tree, with the arguments that it is given and some more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\ncd {shlex.quote(str(ROOT))} && exec {shlex.join(command)} "$@" {shlex.join(last)}\n')
    path.chmod(0o755)


# Code-server's window is a remote one, which forgets these of the user once it knows that the machine has them.
_OF_MACHINE = ("midtoken.command", "midtoken.model", "midtoken.server")


class VsCode(Page):
    """A window of VS Code that shows one file."""

    def __init__(self, driver: "subprocess.Popen[str]", file: Path, logs: Path) -> None:
        super().__init__(driver)
        self.file = file
        self.logs = logs  # the folder of all logs

    def run(self, command: str) -> None:
        """Runs a command by its name in the command palette."""
        self.act("command", command)

    def open(self, name: str) -> None:
        """Opens another file of the workspace."""
        self.press("Control+p")
        self.type(name)
        time.sleep(1)  # VS Code looks for it
        self.press("Enter")

    def save(self) -> str:
        """Saves the file and returns its text."""
        before = self.file.stat().st_mtime_ns
        self.press("Control+s")
        self.wait_for(lambda: self.file.stat().st_mtime_ns != before, True)
        return self.file.read_text()

    @property
    def screen(self) -> tuple[list[str], list[str], bool]:
        """The lines as they are drawn, with and without the ghost text, and whether there is any."""
        screen = self.act("screen")
        return screen["lines"], screen["ownLines"], screen["hasGhost"]

    @property
    def status(self) -> str:
        """What the status item says; empty if it is hidden."""
        return self.act("status") or ""

    @property
    def notifications(self) -> Any:
        return self.act("notifications")

    @property
    def terminal(self) -> str:
        return str(self.act("terminal"))


@contextmanager
def open_vscode(
    extensions: Path, folder: Path, file: Path, environment: Mapping[str, str], settings: Mapping[str, Any]
) -> Iterator[VsCode]:
    """Opens `file` of the workspace `folder`, with user settings beyond those that keep the window tidy.

    All of VS Code's own files are beside the workspace.
    """
    user = folder.parent / "user"
    of_machine = {name: value for name, value in settings.items() if name in _OF_MACHINE}
    of_user = {name: value for name, value in {**_USER_SETTINGS, **settings}.items() if name not in _OF_MACHINE}
    for place, values in (("User", of_user), ("Machine", of_machine)):
        (user / place).mkdir(parents=True)
        (user / place / "settings.json").write_text(json.dumps(values))
    command: list[str | Path] = [
        *(_CODE_SERVER, "--auth", "none", "--bind-addr", "127.0.0.1:0", "--user-data-dir", user),
        *("--extensions-dir", extensions, "--config", user / "config.yaml", "--disable-telemetry"),
        *("--disable-update-check", "--disable-workspace-trust", "--disable-getting-started-override"),
    ]
    with (
        tempfile.TemporaryDirectory() as sockets,  # VS Code leaves them there
        run_program(command, {**os.environ, **_ALONE, "TMPDIR": sockets, **environment}) as server,
    ):
        listening = "HTTP server listening on "
        url = read_lines(server, listening)[-1].partition(listening)[2].strip().rstrip("/")
        payload = [["openFile", f"vscode-remote://{url.removeprefix('http://')}{file}"]]
        query = urlencode({"folder": str(folder), "payload": json.dumps(payload)})
        with run_driver(ROOT / "editors/vscode/test/e2e/driver.ts", f"{url}/?{query}") as driver:
            yield VsCode(driver, file, user / "logs")
