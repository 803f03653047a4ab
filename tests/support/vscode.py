"""A real VS Code with the extension in editors/vscode: code-server, and a headless Chromium that shows it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

_ROOT = Path(__file__).parents[2]
_EDITORS = _ROOT / "build/editors"
_NODE = _EDITORS / "node/bin/node"
_DRIVER = _ROOT / "editors/vscode/test/e2e/driver.ts"
# code-server would ask a public gallery for its extensions, and put the environment of a login shell over the test's.
_ALONE = {"EXTENSIONS_GALLERY": '{"serviceUrl": "http://127.0.0.1:9"}', "VSCODE_CLI": "1"}
_CODE_SERVER = _EDITORS / "code-server/code-server"
_VSIX = _EDITORS / "midtoken.vsix"

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


def find_missing() -> str | None:
    """Returns what is missing for `open_vscode`, in words; None if all is there."""
    missing = [str(path) for path in (_CODE_SERVER, _VSIX, _NODE) if not path.exists()]
    if _find_chromium() is None:
        missing.append("chromium")
    return f"{', '.join(missing)} missing; `make test-vscode` builds and tests" if missing else None


def install_extension(extensions: Path) -> None:
    """Installs the built extension into a folder of extensions."""
    user = extensions.parent / "installer"  # otherwise code-server writes its configuration into the home folder
    command: list[str | Path] = [
        _CODE_SERVER,
        "--user-data-dir",
        user,
        "--config",
        user / "config.yaml",
        "--extensions-dir",
        extensions,
    ]
    subprocess.run([*command, "--install-extension", _VSIX], check=True, capture_output=True)


@dataclass(frozen=True, slots=True)
class VsCode:
    """A window of VS Code that shows one file."""

    file: Path
    logs: Path  # the folder of all logs
    _driver: "subprocess.Popen[str]"

    def type(self, text: str) -> None:
        self._act("type", text)

    def press(self, keys: str) -> None:
        """Presses keys together, such as `Control+ArrowRight`."""
        self._act("press", keys)

    def run(self, command: str) -> None:
        """Runs a command by its name in the command palette."""
        self._act("command", command)

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the window."""
        self._act("resize", f"{width}x{height}")

    def picture(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._act("screenshot", str(path))

    def save(self) -> str:
        """Saves the file and returns its text."""
        before = self.file.stat().st_mtime_ns
        self.press("Control+s")
        self.wait_for(lambda: self.file.stat().st_mtime_ns != before, True)
        return self.file.read_text()

    @property
    def ghost(self) -> Any:
        """The ghost text, or None."""
        return self._act("ghost")

    @property
    def screen(self) -> tuple[list[str], list[str], bool]:
        """The lines as they are drawn, with and without the ghost text, and whether there is any."""
        screen = self._act("screen")
        return screen["lines"], screen["ownLines"], screen["hasGhost"]

    @property
    def status(self) -> Any:
        """What the status item says, or None if it is hidden."""
        return self._act("status")

    @property
    def notifications(self) -> Any:
        return self._act("notifications")

    @property
    def terminal(self) -> Any:
        return self._act("terminal")

    def wait_for(self, find: Callable[[], Any], wanted: Any, within_s: float = 20.0) -> None:
        """Waits until `find` returns what is wanted. Fails with what it returned last."""
        deadline_s = time.monotonic() + within_s
        while (found := find()) != wanted:
            assert time.monotonic() < deadline_s, f"{found!r} instead of {wanted!r}"
            time.sleep(0.05)

    def wait_for_ghost(self, text: str | None) -> None:
        self.wait_for(lambda: self.ghost, text)

    def _act(self, action: str, argument: str = "") -> Any:
        assert self._driver.stdin is not None
        self._driver.stdin.write(json.dumps({"action": action, "argument": argument}) + "\n")
        self._driver.stdin.flush()
        return _read_result(self._driver)


@contextmanager
def open_vscode(
    extensions: Path, folder: Path, file: Path, environment: Mapping[str, str], settings: Mapping[str, Any]
) -> Iterator[VsCode]:
    """Opens `file` of the workspace `folder`, with user settings beyond those that keep the window tidy.

    All of VS Code's own files are beside the workspace.
    """
    user = folder.parent / "user"
    (user / "User").mkdir(parents=True)
    (user / "User/settings.json").write_text(json.dumps({**_USER_SETTINGS, **settings}))
    command: list[str | Path] = [
        *(_CODE_SERVER, "--auth", "none", "--bind-addr", "127.0.0.1:0", "--user-data-dir", user),
        *("--extensions-dir", extensions, "--config", user / "config.yaml", "--disable-telemetry"),
        *("--disable-update-check", "--disable-workspace-trust", "--disable-getting-started-override"),
    ]
    with _run(command, {**os.environ, **_ALONE, **environment}) as server:
        url = _read_address(server)
        payload = [["openFile", f"vscode-remote://{url.removeprefix('http://')}{file}"]]
        query = urlencode({"folder": str(folder), "payload": json.dumps(payload)})
        chromium = _find_chromium()
        assert chromium is not None
        with _run([_NODE, _DRIVER, chromium, f"{url}/?{query}"], os.environ) as driver:
            _read_result(driver)
            yield VsCode(file, user / "logs", driver)
            assert driver.stdin is not None
            driver.stdin.close()
            driver.wait(20)


@contextmanager
def _run(command: Sequence[str | Path], environment: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):  # the driver has ended by itself
                os.killpg(process.pid, signal.SIGTERM)  # VS Code's extension host does not end with code-server


def _read_address(server: "subprocess.Popen[str]") -> str:
    """Returns the address that code-server prints once it listens."""
    assert server.stdout is not None
    lines = []
    for line in server.stdout:
        lines.append(line)
        if "HTTP server listening on " in line:
            return line.split("HTTP server listening on ")[1].strip().rstrip("/")
    raise AssertionError(f"code-server ended: {''.join(lines)}")


def _read_result(driver: "subprocess.Popen[str]") -> Any:
    assert driver.stdout is not None
    line = driver.stdout.readline()
    assert line, "the driver of Chromium has ended; its error is above"
    answer = json.loads(line)
    assert "error" not in answer, answer["error"]
    return answer["result"]


def _find_chromium() -> str | None:
    return shutil.which(os.environ.get("MIDTOKEN_CHROMIUM", "chromium"))
