"""What the user is told: that the completion server is starting, that it is ready, and each error once."""

from collections.abc import Sequence
from typing import Protocol

from inference.errors import MidtokenError


class Window(Protocol):
    """Shows messages to the user of the editor. Each text is one line."""

    def log(self, text: str) -> None:
        """Adds a line to the editor's log."""

    def show_error(self, text: str) -> None:
        """Shows an error message."""

    def begin_progress(self, text: str) -> None:
        """Shows that an operation is running."""

    def end_progress(self, text: str) -> None:
        """Hides what `begin_progress` shows, if anything, and logs `text`."""


class Status:
    """Reports changes of state. An error that occurs at every keystroke is shown once.

    After a successful completion, the same error can be shown again.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._shown_errors: set[str] = set()
        self._problems: frozenset[str] = frozenset()

    def starting(self) -> None:
        """The completion server is being started, and it is taking long enough to show that."""
        self._window.begin_progress("starting the completion server; the first start takes some ten seconds")

    def ready(self, start_s: float) -> None:
        """The connection to the completion server works."""
        self._window.end_progress(f"completion server ready after {start_s:.1f} s")

    def start_cancelled(self) -> None:
        """The start was cancelled. This is not an error."""
        self._window.end_progress("start of the completion server cancelled")

    def not_started(self, error: MidtokenError) -> None:
        """The completion server could not be started or reached."""
        self._window.end_progress("completion server not started")
        self.failed(error)

    def working(self) -> None:
        """A completion has arrived."""
        self._shown_errors.clear()

    def failed(self, error: MidtokenError) -> None:
        """A completion failed."""
        text = " ".join(str(error).split()) or type(error).__name__
        if text not in self._shown_errors:
            self._shown_errors.add(text)
            self._window.show_error(f"midtoken: {text}")

    def configured(self, problems: Sequence[str]) -> None:
        """The settings were read. A problem is shown unless the last call had it too."""
        for problem in problems:
            if problem not in self._problems:
                self._window.show_error(f"midtoken: {problem}")
        self._problems = frozenset(problems)
