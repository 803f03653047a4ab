import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.protocol.completion import ExplainedNode
from midtoken.answer import compute_shares, mark_blanks


@pytest.mark.parametrize(
    ("masses", "shares"),
    [
        ([math.log(0.3), None, math.log(0.1)], [0.75, None, 0.25]),
        ([-2000.0, -2000.0], [0.5, 0.5]),  # too small for a float
        ([None, None], [None, None]),
        ([], []),
    ],
)
def test_shares_are_of_all_crossings_and_sum_to_one(masses: list[float | None], shares: list[float | None]) -> None:
    found = compute_shares([ExplainedNode(None, "", 0, mass, None, None) for mass in masses])
    assert list(found) == [share if share is None else pytest.approx(share) for share in shares]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b\t\r\n\x1b[0m", "a·b⇥␍⏎␛[0m"),
        ("\x00\x7f", "␀␡"),
        ("\x85\u202e\u2028", "\\u0085\\u202e\\u2028"),  # U+202E reverses the text after it
        ("\u200d", "\\u200d"),
        ("e\u0301🇩🇪", "e\u0301🇩🇪"),
        ("\udcff", "\\xff"),  # a byte that is not UTF-8
        ("", ""),
    ],
)
def test_blanks_are_marked_and_control_characters_are_escaped(text: str, shown: str) -> None:
    assert mark_blanks(text) == shown


@given(st.text())
def test_no_control_character_is_shown_raw(text: str) -> None:
    shown = mark_blanks(text)
    assert not {char for char in shown if ord(char) < 0x20}
    assert not set(shown) & {"\x7f", "\u202a", "\u202e", "\u2066", "\u2028"}
