"""The surprisal of a text, by line and by character."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midtoken.display.scored_text import ScoredText


def _score(text: bytes, bits: float = 1.0) -> ScoredText:
    return ScoredText("app.py", text, (bits,) * len(text))


def test_the_bits_of_a_character_are_the_sum_over_its_bytes() -> None:
    (line,) = _score("é日🇩🇪".encode()).split_lines()
    assert line.bits == (2.0, 3.0, 8.0)


def test_a_line_has_its_number_and_its_mean_bits() -> None:
    first, second = ScoredText("app.py", b"ab\nc", (1.0, 2.0, 3.0, 0.5)).split_lines()
    assert (first.number, second.number) == (1, 2)
    assert [first.bits_per_byte, second.bits_per_byte] == pytest.approx([2.0, 0.5])


def test_an_impossible_byte_makes_the_total_infinite() -> None:
    scored = ScoredText("app.py", b"ab", (1.0, math.inf))
    assert scored.total_bits == scored.bits_per_byte == math.inf


@given(st.binary(min_size=1))
def test_the_bits_of_all_lines_are_the_bits_of_the_text(text: bytes) -> None:
    scored = ScoredText("app.py", text, tuple(float(index) for index in range(len(text))))
    assert math.fsum(bits for line in scored.split_lines() for bits in line.bits) == scored.total_bits
