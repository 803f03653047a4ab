"""What counts as a loop, and where the benchmark of first looks asks."""

import pytest

from benchmarks.measures.first_look import list_situations, loops


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


def test_each_situation_is_one_place_in_different_text() -> None:
    situations = list_situations()
    assert len({gap.prefix + gap.suffix for gap in situations}) == len(situations) > 90
    assert not any("▏" in gap.prefix + gap.suffix for gap in situations)
