"""Output that is only written to a terminal."""

import io
import sys

import pytest

from midtoken.display.terminal import print_dim, show_waiting
from tests.support.servers import wait_until


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    monkeypatch.setenv("TERM", "xterm")
    return _Terminal()


def test_dim_text_is_printed_unchanged(terminal: _Terminal) -> None:
    print_dim("[red]    self.x[0]", terminal)
    assert "[red]    self.x[0]" in terminal.getvalue()
    assert not terminal.getvalue().endswith("\n")


def test_dim_text_is_not_written_to_a_pipe() -> None:
    stream = io.StringIO()
    print_dim("text", stream)
    assert stream.getvalue() == ""


def test_waiting_is_shown_in_a_terminal(terminal: _Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    with show_waiting():
        wait_until(lambda: "waiting for the completion server" in terminal.getvalue())


def test_waiting_is_not_shown_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with show_waiting():
        pass
    assert capsys.readouterr() == ("", "")
