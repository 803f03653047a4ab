"""What a person is told: that the completion server starts, that it is ready, and each error once."""

from collections.abc import Sequence
from typing import Protocol

from inference.errors import MidtokenError


class Window(Protocol):
    """Where the editor shows things to a person. Each text is one line."""

    def log(self, text: str) -> None:
        """Adds a line to the editor's log, which a person opens to look something up."""

    def show_error(self, text: str) -> None:
        """Shows an error where a person sees it at once."""

    def begin_progress(self, text: str) -> None:
        """Shows that something is under way."""

    def end_progress(self, text: str) -> None:
        """Ends what `begin_progress` shows, if it shows anything, and logs how it went."""


class Status:
    """Tells changes of state, not states: an error that occurs at every keystroke is shown once.

    After a completion that works, the same error is shown again.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._shown_errors: set[str] = set()
        self._problems: frozenset[str] = frozenset()

    def starting(self) -> None:
        """The completion server is being started, and that takes long enough to say so."""
        self._window.begin_progress("starting the completion server; the first start takes some ten seconds")

    def ready(self, start_s: float) -> None:
        """The completion server answers."""
        self._window.end_progress(f"completion server ready after {start_s:.1f} s")

    def start_cancelled(self) -> None:
        """The start was cancelled, which is no error."""
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
        """The settings were read. Each problem is shown when it is new since the last call."""
        for problem in problems:
            if problem not in self._problems:
                self._window.show_error(f"midtoken: {problem}")
        self._problems = frozenset(problems)
