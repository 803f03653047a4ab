"""A real `midtoken playground`, and a headless Chromium that shows its page."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.browser import ROOT, Page, name_missing, read_lines, run_driver, run_program

_FOLDER = ROOT / "editors/playground"
LIBRARY = _FOLDER / "node_modules/puppeteer-core"
MISSING = name_missing(_FOLDER / "dist/index.html", LIBRARY, target="test-playground")


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
    with run_program((sys.executable, "-m", "midtoken", "playground", *arguments)) as process:
        (address,) = (line.strip() for line in read_lines(process, "Ctrl-C") if line.startswith("  http://"))
        yield RunningPlayground(process, address)


class PlaygroundPage(Page):
    """The page in Chromium."""

    def open(self, url: str) -> None:
        """Shows the page of another playground."""
        self.act("open", url)

    def insert(self, text: str) -> None:
        """Replaces the whole text, and leaves the cursor at its end. The editor indents lines after indented ones."""
        self.press("Control+a")
        self.act("insert", text)

    def click(self, name: str) -> None:
        """Clicks the button with this text."""
        self.act("click", name)

    @property
    def tone(self) -> Any:
        """How good the state is: good, busy or bad."""
        return self.act("status")["tone"]

    @property
    def status(self) -> Any:
        return self.act("status")["text"]

    def wait_for_pictures(self) -> Any:
        """Waits until all about the newest text is shown, and returns it."""
        self.wait_for(lambda: self.act("pictures") is not None, True)
        return self.act("pictures")


@contextmanager
def open_page(url: str) -> Iterator[PlaygroundPage]:
    """Opens the page inside the block."""
    with run_driver(_FOLDER / "test/e2e/driver.ts", url) as driver:
        yield PlaygroundPage(driver)
