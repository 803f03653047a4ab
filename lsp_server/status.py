"""What a person is told: that the server starts, that it is there, and what went wrong, once."""

from typing import Protocol


class Window(Protocol):
    """Where the editor shows things to a person. Each text is one line."""

    def log(self, text: str) -> None:
        """Into the editor's log, where a person looks who wants to know."""

    def show_error(self, text: str) -> None:
        """Where a person cannot miss it."""

    def begin_progress(self, text: str) -> None:
        """Something takes a while."""

    def end_progress(self, text: str) -> None:
        """And is over."""


class Status:
    """Tells changes of state, not states: an error that comes at every keystroke is shown once.

    A completion that works ends the silence, so that the same error is shown when it comes back later.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._shown_errors: set[str] = set()

    def starting(self) -> None:
        """The completion server is being started, which takes long enough to say so."""
        self._window.begin_progress("starting the completion server; the first start takes some ten seconds")

    def ready(self, start_s: float) -> None:
        """The completion server answers."""
        self._window.end_progress(f"completion server ready after {start_s:.1f} s")

    def working(self) -> None:
        """A completion came back."""
        self._shown_errors.clear()

    def not_started(self, error: Exception) -> None:
        """The completion server could not be started or reached."""
        self._window.end_progress("completion server not started")
        self.failed(error)

    def failed(self, error: Exception) -> None:
        """A completion did not come back; `error`'s text is fit for a person."""
        text = " ".join(str(error).split()) or type(error).__name__
        if text not in self._shown_errors:
            self._shown_errors.add(text)
            self._window.show_error(f"midtoken: {text}")

    def misconfigured(self, problem: str) -> None:
        """A setting cannot be used."""
        self._window.show_error(f"midtoken: {problem}")
