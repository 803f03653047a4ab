"""Lines that stand next to the cursor already are not suggested."""

import pytest

from lsp_server.filters.repeated_lines import drop_repeated_above, drop_repeated_below
from lsp_server.text.context import Context


@pytest.mark.parametrize(
    ("around", "text", "is_dropped"),
    [
        ("x = 1\n|", "x = 1", True),
        ("x = 1\nx|", " = 1", True),
        ("x = 1\n\n|", "x = 1", True),
        ("x = 1\n|", "x = 10", False),
        ("    x = 1\n|", "x = 1", False),  # indented differently
        ("a()\nb()\n|", "a()\nb()", True),
        ("a()\nb()\n|", "b()\nc()", False),
        ("f(\n  (1),\n  ),\n|", "  ),", False),  # no letter and no digit
        ("|", "x = 1", False),
    ],
)
def test_lines_right_above_are_not_repeated(around: str, text: str, is_dropped: bool) -> None:
    assert (drop_repeated_above(text, Context(*around.split("|"))) == "") == is_dropped


@pytest.mark.parametrize(
    ("around", "text", "is_dropped"),
    [("|\nx = 1\n", "x = 1", True), ("x|\n\nx = 1\n", " = 1", True), ("|\nx = 10\n", "x = 1", False)],
)
def test_lines_right_below_are_not_repeated(around: str, text: str, is_dropped: bool) -> None:
    assert (drop_repeated_below(text, Context(*around.split("|"))) == "") == is_dropped
