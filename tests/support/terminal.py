"""A program in a terminal that a test types into and reads."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import pexpect
import pyte

_ASKED_FOR_ATTRIBUTES = "\x1b[c"
_ATTRIBUTES = "\x1b[?62;22c"  # a VT220 with colours


def shows(text: str) -> Callable[[list[str]], bool]:
    """Returns a condition for `Terminal.wait_for`."""
    return lambda lines: any(text in line for line in lines)


class _Screen(pyte.Screen):  # type: ignore[misc]  # pyte has no types
    """Accepts what newer programs ask a terminal."""

    def report_device_status(self, mode: int, **_: Any) -> None:
        super().report_device_status(mode)

    def select_graphic_rendition(self, *attributes: int, private: bool = False) -> None:
        if not private:
            super().select_graphic_rendition(*attributes)


class Terminal:
    """A running program and its screen."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: str, size: tuple[int, int]):
        rows, columns = size
        self._screen = _Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lines = [""] * rows
        self._process = pexpect.spawn(
            command[0], list(command[1:]), env=dict(environment), cwd=folder, dimensions=size, timeout=None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close(force=True)

    def type(self, keys: str) -> None:
        self._process.send(keys)

    @property
    def lines(self) -> list[str]:
        """The screen now."""
        if self._read():
            self._lines = [line.rstrip() for line in self._screen.display]
        return self._lines

    def wait_for(
        self, holds: Callable[[list[str]], bool], within_s: float = 30.0, keys: str = "", every_s: float = 1.0
    ) -> list[str]:
        """Waits until the screen is as it should be, and returns it. Types `keys` again and again meanwhile."""
        started_s, num_typed = time.monotonic(), 0
        while not holds(lines := self.lines):
            elapsed_s = time.monotonic() - started_s
            assert elapsed_s < within_s, "\n".join(lines)
            if keys and elapsed_s > every_s * (num_typed + 1):
                num_typed += 1
                self.type(keys)
        return lines

    def _read(self) -> bool:
        """Returns whether there was anything new."""
        try:
            output = self._process.read_nonblocking(1 << 16, timeout=0.02)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return False
        if _ASKED_FOR_ATTRIBUTES.encode() in output:
            self._process.send(_ATTRIBUTES)
        self._stream.feed(output)
        return True
