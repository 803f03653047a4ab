"""A real `midtoken playground`, and a headless Chromium that shows its page.

`python -m tests.support.playground FILE` writes a picture of it, with the default model.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.servers import find_real, run_server

_ROOT = Path(__file__).parents[2]
NODE = _ROOT / "build/editors/node/bin/node"
_DRIVER = _ROOT / "editors/playground/test/e2e/driver.ts"
_PAGE = _ROOT / "editors/playground/dist/index.html"
LIBRARY = _ROOT / "editors/playground/node_modules/puppeteer-core"
CHROMIUM = os.environ.get("MIDTOKEN_CHROMIUM", "chromium")


def find_missing() -> str | None:
    """Returns what is missing for `open_page`, in words; None if all is there."""
    missing = [str(path) for path in (NODE, _PAGE, LIBRARY) if not path.exists()]
    if _find_chromium() is None:
        missing.append("chromium")
    return f"{', '.join(missing)} missing; `make test-playground` builds and tests" if missing else None


@dataclass(frozen=True, slots=True)
class RunningPlayground:
    """A process of `midtoken playground` that serves its page."""

    process: "subprocess.Popen[str]"
    url: str

    def interrupt(self) -> int:
        """Ends it as Ctrl-C does, and returns its exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@contextmanager
def run_playground(*arguments: str) -> Iterator[RunningPlayground]:
    """Runs a playground inside the block."""
    command = (sys.executable, "-m", "midtoken", "playground", *arguments)
    with _run(command) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Ctrl-C"):
                break
        addresses = [line.strip() for line in lines if line.startswith("  http://")]
        assert addresses, f"the playground ended: {''.join(lines)}"
        yield RunningPlayground(process, addresses[0])


@dataclass(frozen=True, slots=True)
class Page:
    """The page in Chromium."""

    _driver: "subprocess.Popen[str]"

    def type(self, text: str) -> None:
        self._act("type", text)

    def insert(self, text: str) -> None:
        """Inserts any characters."""
        self._act("insert", text)

    def press(self, keys: str) -> None:
        """Presses keys together, such as `Control+ArrowRight`."""
        self._act("press", keys)

    def click(self, name: str) -> None:
        """Clicks the button with this text."""
        self._act("click", name)

    def set_scheme(self, name: str) -> None:
        """Shows the page in light or dark colours."""
        self._act("scheme", name)

    def picture(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._act("screenshot", str(path))

    def find_overflow(self, width: int) -> Any:
        """Returns by how many pixels the page is wider than a window of this width."""
        return self._act("overflow", str(width))

    @property
    def ghost(self) -> Any:
        """The ghost text, or None."""
        return self._act("ghost")

    @property
    def lines(self) -> Any:
        """The lines of the editor, with the ghost text."""
        return self._act("lines")

    @property
    def text(self) -> Any:
        """The text of the pictures."""
        return self._act("text")

    @property
    def tone(self) -> Any:
        """How good the state is: good, busy or bad."""
        return self._act("status")["tone"]

    @property
    def status(self) -> Any:
        return self._act("status")["text"]

    @property
    def problems(self) -> Any:
        """The errors that the browser has logged, and the requests that a page should not send."""
        return self._act("problems")

    def wait_for_pictures(self) -> Any:
        """Waits until all about the newest text is shown, and returns it."""
        self.wait_for(lambda: self._act("pictures") is not None, True)
        return self._act("pictures")

    def wait_for_ghost(self, text: str | None) -> None:
        self.wait_for(lambda: self.ghost, text)

    def wait_for(self, find: Callable[[], Any], wanted: Any, within_s: float = 60.0) -> None:
        """Waits until `find` returns what is wanted. Fails with what it returned last."""
        deadline_s = time.monotonic() + within_s
        while (found := find()) != wanted:
            assert time.monotonic() < deadline_s, f"{found!r} instead of {wanted!r}; status: {self.status}"
            time.sleep(0.05)

    def _act(self, action: str, argument: str = "") -> Any:
        assert self._driver.stdin is not None
        self._driver.stdin.write(json.dumps({"action": action, "argument": argument}) + "\n")
        self._driver.stdin.flush()
        return _read_result(self._driver)


@contextmanager
def open_page(url: str) -> Iterator[Page]:
    """Opens the page inside the block."""
    chromium = _find_chromium()
    assert chromium is not None
    with _run((NODE, _DRIVER, chromium, url)) as driver:
        _read_result(driver)
        yield Page(driver)
        assert driver.stdin is not None
        driver.stdin.close()
        driver.wait(20)


@contextmanager
def _run(command: Sequence[str | Path]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT, start_new_session=True
    )
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.killpg(process.pid, signal.SIGTERM)


def _read_result(driver: "subprocess.Popen[str]") -> Any:
    assert driver.stdout is not None
    line = driver.stdout.readline()
    assert line, "the driver of Chromium has ended; its error is above"
    answer = json.loads(line)
    assert "error" not in answer, answer["error"]
    return answer["result"]


def _find_chromium() -> str | None:
    return shutil.which(CHROMIUM)


def _draw(path: Path) -> None:
    served = find_real()
    assert served is not None, "the default model is missing"
    with (
        tempfile.TemporaryDirectory() as folder,
        run_server(served, Path(folder)) as server,
        run_playground(f"--server={server.url}") as playground,
    ):
        with open_page(playground.url) as page:
            page.wait_for_pictures()  # the first one waits until the character-level model is loaded
        with open_page(playground.url) as page:
            page.wait_for(lambda: page.ghost is not None, True)
            page.wait_for_pictures()
            time.sleep(1.0)  # until nothing moves
            page.picture(path)


if __name__ == "__main__":
    _draw(Path(sys.argv[1]).resolve())
