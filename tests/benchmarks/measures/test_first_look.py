"""What counts as a loop."""

import pytest

from benchmarks.measures.first_look import loops


@pytest.mark.parametrize(
    ("prefix", "text", "expected"),
    [
        ("f(", '"a", "a", "a", "b"', True),
        ("f(", '"a", "a", "b"', False),
        ("x = ", "0" * 20, True),
        ("# ", "-" * 40, False),
        ("", "a()\nb()\na()\nb()\na()\nb()", True),
        ("", "    )\n" * 3, False),
        ("0, 0, 0, 0,\n", "0, 0, 0, 0,", False),  # the next row of a table
    ],
)
def test_a_text_loops_if_it_stands_there_three_times_and_not_before(prefix: str, text: str, expected: bool) -> None:
    assert loops(prefix, text) == expected
