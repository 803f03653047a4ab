import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midtoken.scored_text import ScoredText, build_legend, find_rgb, paint_line


def _score(text: bytes, bits: float = 1.0) -> ScoredText:
    return ScoredText("app.py", text, (bits,) * len(text))


def test_the_bits_of_a_character_are_the_sum_over_its_bytes() -> None:
    (line,) = _score("é日🇩🇪".encode()).split_lines()
    assert line.bits == (2.0, 3.0, 8.0)


def test_an_impossible_byte_makes_the_total_infinite() -> None:
    scored = ScoredText("app.py", b"ab", (1.0, math.inf))
    assert scored.total_bits == scored.bits_per_byte == math.inf


@given(st.binary(min_size=1))
def test_the_bits_of_all_lines_are_the_bits_of_the_text(text: bytes) -> None:
    scored = ScoredText("app.py", text, tuple(float(index) for index in range(len(text))))
    assert math.fsum(bits for line in scored.split_lines() for bits in line.bits) == scored.total_bits


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
    (line,) = _score(text, bits).split_lines()
    painted = paint_line(line)
    assert (painted.plain, any(span.style for span in painted.spans)) == (shown, has_colour)


def test_more_bits_have_a_darker_colour() -> None:
    colours = [find_rgb(bits) for bits in (0.5, 1.0, 3.0, 9.0, 16.0)]
    brightness = [sum(rgb or ()) for rgb in colours]
    assert all(brightness)
    assert brightness == sorted(brightness, reverse=True)
    assert len(set(brightness)) == len(brightness)


def test_bits_above_the_last_step_have_its_colour() -> None:
    assert find_rgb(math.inf) == find_rgb(16.0)


def test_black_text_is_readable_on_each_colour() -> None:
    for bits in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
        red, green, blue = ((part / 255) ** 2.2 for part in find_rgb(bits) or ())
        luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        assert (luminance + 0.05) / 0.05 >= 4.5  # WCAG 2.2, contrast (minimum)


def test_the_legend_shows_its_steps() -> None:
    assert build_legend().plain.split()[-6:] == ["0.5", "1", "2", "4", "8", "16+"]
