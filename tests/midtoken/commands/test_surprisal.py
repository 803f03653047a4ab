"""The output of `midtoken surprisal`."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midtoken.cli import main
from midtoken.commands.surprisal import (
    ScoredLine,
    find_style,
    format_line,
    paint_line,
    score_lines,
)


def test_a_row_has_bits_per_byte_line_number_and_line_without_its_line_end() -> None:
    text = "ab\né = 1\r\n\tx\n\nc".encode()
    lines = score_lines(text, (1.0, 2.0, 3.0, *[1.0] * 12, 0.5))
    shown = ["2.000\t1\tab", "1.000\t2\té = 1", "1.000\t3\t\tx", "1.000\t4\t", "0.500\t5\tc"]
    assert [format_line(number, line) for number, line in enumerate(lines, 1)] == shown


def test_an_empty_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.touch()
    assert main(["surprisal", str(path)]) == 1
    assert capsys.readouterr().err == f"midtoken: {path} is empty; there is no surprisal to show\n"


def _score(text: bytes, bits: float = 1.0) -> list[ScoredLine]:
    return list(score_lines(text, (bits,) * len(text)))


def test_the_bits_of_a_character_are_the_sum_over_its_bytes() -> None:
    (line,) = _score("é日🇩🇪".encode())
    assert [bits for _, bits in line] == [2.0, 3.0, 8.0]


@given(st.binary(min_size=1))
def test_the_bits_of_all_lines_are_the_bits_of_the_text(text: bytes) -> None:
    surprisals = [float(index) for index in range(len(text))]
    assert math.fsum(bits for line in score_lines(text, surprisals) for _, bits in line) == math.fsum(surprisals)


@pytest.mark.parametrize(
    ("text", "bits", "shown", "has_colour"),
    [
        (b"abc\n", 0.1, "abc", False),
        (b"a\r\n", 4.0, "a⏎", True),
        ("日本\tx".encode(), 1.0, "日本    x", True),  # up to the tab stop
    ],
)
def test_surprising_graphemes_have_a_colour_and_line_ends_only_then_a_mark(
    text: bytes, bits: float, shown: str, has_colour: bool
) -> None:
    (line,) = _score(text, bits)
    painted = paint_line(line)
    assert (painted.plain, any(span.style for span in painted.spans)) == (shown, has_colour)


_STEPS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


def _read_colour(bits: float) -> list[int]:
    return list(bytes.fromhex(find_style(bits).removeprefix("#000000 on #")))


def test_more_bits_have_a_darker_colour() -> None:
    brightness = [sum(_read_colour(bits)) for bits in _STEPS]
    assert brightness == sorted(set(brightness), reverse=True)
    assert find_style(math.nextafter(0.5, 0)) == ""
    assert find_style(math.inf) == find_style(16.0)
