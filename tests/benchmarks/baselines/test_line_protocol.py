import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from benchmarks.baselines.contestants.line_protocol import Answer, Contestant, KeptTokens, Line, Request

_TOKENIZER = Tokenizer.from_file(str(Path("models/default/tokenizer.json")))
_PIECES = st.sampled_from(["\n", "\r", "\r\n", "  ", "\t", " ", ":", "):", "it's", "foo", "é", "\u2028", "\x0b", "''"])

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


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ([(1.0, b""), (2.0, b"a"), (3.0, b"b\nc")], Answer("ab", 2000.0, 3000.0)),
        ([(1.0, b"ab\n"), (2.0, b"c"), (3.0, b"\n")], Answer("ab", 1000.0, 1000.0)),
        ([(1.0, b"ab")], Answer("ab", 1000.0, 4000.0)),  # complete at the end
        ([], Answer("", 4000.0, 4000.0)),
        ([(1.0, "é".encode()[:1]), (2.0, "é".encode()[1:])], Answer("é", 2000.0, 4000.0)),
    ],
)
def test_times_are_those_of_the_first_character_and_of_the_line_break(
    sent: list[tuple[float, bytes]], answer: Answer
) -> None:
    now = 0.0
    line = Line(lambda: now)
    for now, piece in sent:  # noqa: B007  # the clock reads it
        line.send_bytes(piece)
    now = 4.0

    assert line.finish() == answer


def test_a_process_answers_each_request_and_its_error_is_shown(tmp_path: Path) -> None:
    with Contestant("echo", [sys.executable, "-c", _SCRIPT], {}, tmp_path / "log") as contestant:
        lines = [contestant.complete(Request(text, max_tokens=4)).line for text in ("abcdef", "é\nb", "\u2028x")]
        assert lines == ["abcd", "é", "\u2028x"]

        with pytest.raises(RuntimeError, match="there is no text"):
            contestant.complete(Request(""))


def _encode(text: str) -> list[int]:
    return list(_TOKENIZER.encode(text).ids)


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(_PIECES, max_size=8).map("".join)), max_size=8))
@example([(0, ""), (0, "\n")])  # a second line break becomes one token with the first
@example([(0, ":\n\n"), (3, "\n:")])  # the line before the kept end is longer now
def test_kept_ids_are_those_of_the_whole_text(edits: list[tuple[int, str]]) -> None:
    kept, text = KeptTokens(_encode), "def f():\n    x = 1\n"
    for num_deleted, typed in edits:
        text = text[: max(len(text) - num_deleted, 0)] + typed

        assert kept.encode(text) == _encode(text)
