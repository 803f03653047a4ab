"""A headless Chromium, and the drivers in editors/*/test/e2e that type into a page of it and read what it shows."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NODE = ROOT / "build/editors/node/bin/node"
CHROMIUM = shutil.which(os.environ.get("MIDTOKEN_CHROMIUM", "chromium")) or ""


def name_missing(*paths: Path, target: str) -> str | None:
    """Returns what is missing of the paths, Node and Chromium, in words; None if all is there."""
    missing = [str(path) for path in (NODE, *paths) if not path.exists()] + ["chromium"] * (not CHROMIUM)
    return f"{', '.join(missing)} missing; `make {target}` builds and tests" if missing else None


class Page:
    """A page in Chromium, and the editor in it."""

    def __init__(self, driver: "subprocess.Popen[str]") -> None:
        self._driver = driver

    def type(self, text: str) -> None:
        self.act("type", text)

    def press(self, keys: str) -> None:
        """Presses keys together, such as `Control+ArrowRight`."""
        self.act("press", keys)

    def picture(self, path: Path) -> None:
        self.act("screenshot", str(path))

    @property
    def ghost(self) -> Any:
        """The ghost text, or None."""
        return self.act("ghost")

    def wait_for_ghost(self, text: str | None) -> None:
        self.wait_for(lambda: self.ghost, text)

    def wait_for(self, find: Callable[[], Any], wanted: Any, within_s: float = 60.0) -> None:
        """Waits until `find` returns what is wanted. Fails with what it returned last."""
        deadline_s = time.monotonic() + within_s
        while (found := find()) != wanted:
            assert time.monotonic() < deadline_s, f"{found!r} instead of {wanted!r}; status: {self.act('status')}"
            time.sleep(0.05)

    def act(self, action: str, argument: str = "") -> Any:
        """Returns the result of one of the driver's actions."""
        assert self._driver.stdin is not None
        self._driver.stdin.write(json.dumps({"action": action, "argument": argument}) + "\n")
        self._driver.stdin.flush()
        return _read_result(self._driver)


@contextmanager
def run_driver(driver: Path, url: str) -> Iterator["subprocess.Popen[str]"]:
    """Opens the page inside the block."""
    with run_program([NODE, driver, CHROMIUM, url]) as process:
        _read_result(process)
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(20)


@contextmanager
def run_program(
    command: Sequence[str | Path], environment: Mapping[str, str] = os.environ
) -> Iterator["subprocess.Popen[str]"]:
    """Runs it inside the block, and ends all of its processes afterwards."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.killpg(process.pid, signal.SIGTERM)


def read_lines(process: "subprocess.Popen[str]", last: str) -> list[str]:
    """Returns the lines that a program prints, up to one that contains `last`."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or last not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], f"the program has ended: {''.join(lines)}"
    return lines


def _read_result(driver: "subprocess.Popen[str]") -> Any:
    assert driver.stdout is not None
    line = driver.stdout.readline()
    assert line, "the driver of Chromium has ended; its error is above"
    answer = json.loads(line)
    assert "error" not in answer, answer["error"]
    return answer["result"]
