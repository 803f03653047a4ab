import sys
from pathlib import Path

import pytest

from benchmarks.baselines.contestants.line_protocol import Answer, Contestant, Line, Request

# Sends the text back letter by letter, and fails at an empty one. Its library prints to the standard output.
_SCRIPT = """
from benchmarks.baselines.contestants.line_protocol import serve

def complete(request, line):
    print("a library's message")
    assert request.text, "there is no text"
    for char in request.text[: request.max_tokens]:
        if line.send(char):
            return

serve(lambda: complete)
"""


def _answer(*sent: tuple[float, str | bytes], end_s: float) -> Answer:
    """The answer if these pieces are sent at these times, in seconds after the start."""
    now = 0.0
    line = Line(lambda: now)
    for now, piece in sent:  # noqa: B007  # the clock reads it
        line.send(piece) if isinstance(piece, str) else line.send_bytes(piece)
    now = end_s
    return line.finish()


def test_first_text_is_the_first_piece_that_is_not_empty() -> None:
    answer = _answer((1.0, ""), (2.0, "a"), (3.0, "b\nc"), end_s=4.0)

    assert answer == Answer("ab", 2000.0, 3000.0)


def test_what_follows_the_line_break_changes_no_time() -> None:
    answer = _answer((1.0, "ab\n"), (2.0, "c"), (3.0, "\n"), end_s=4.0)

    assert answer == Answer("ab", 1000.0, 1000.0)


def test_a_line_without_a_break_is_complete_at_the_end() -> None:
    assert _answer((1.0, "ab"), end_s=4.0) == Answer("ab", 1000.0, 4000.0)


def test_without_text_the_first_text_comes_with_the_end() -> None:
    assert _answer(end_s=4.0) == Answer("", 4000.0, 4000.0)


def test_a_character_is_sent_when_its_bytes_are_there() -> None:
    answer = _answer((1.0, "é".encode()[:1]), (2.0, "é".encode()[1:]), end_s=4.0)

    assert answer == Answer("é", 2000.0, 4000.0)


def test_a_sender_learns_that_the_line_is_complete() -> None:
    line = Line()

    assert [line.send(piece) for piece in ("", "a", "b\n", "c")] == [False, False, True, True]


def test_a_process_answers_each_request(tmp_path: Path) -> None:
    with _start(tmp_path) as contestant:
        lines = [contestant.complete(Request(text, max_tokens=4)).line for text in ("abcdef", "é\nb", "\u2028x")]

    assert lines == ["abcd", "é", "\u2028x"]


def test_the_error_of_a_contestant_is_shown(tmp_path: Path) -> None:
    with _start(tmp_path) as contestant, pytest.raises(RuntimeError, match="there is no text"):
        contestant.complete(Request(""))


def test_a_contestant_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]

    with pytest.raises(RuntimeError, match="no such model"):
        Contestant("broken", command, {}, tmp_path / "log")


def _start(folder: Path) -> Contestant:
    return Contestant("echo", [sys.executable, "-c", _SCRIPT], {}, folder / "logs" / "echo.log")
