"""When a suggestion repeats the suffix, and when it is indented otherwise than the file."""

import pytest

from benchmarks.corpora.cuts import Gap, GapKind
from benchmarks.measures.suggestions import Inserted, indent_with

_GAP = Gap(GapKind.BLOCK, "def f():\n    ", "return 1", "\n\n\ndef g():\n    pass\n")


@pytest.mark.parametrize(("text", "repeats"), [("return 1", False), ("return 1\n\ndef g():", True), ("", False)])
def test_the_line_below_is_not_repeated(text: str, repeats: bool) -> None:
    assert Inserted(_GAP, "    ", text, "").repeats_suffix is repeats


def test_what_is_replaced_is_not_repeated() -> None:
    gap = Gap(GapKind.LINE, "x = f(", "a", ")\n")
    assert not Inserted(gap, "    ", "g(b))", ")").repeats_suffix


@pytest.mark.parametrize(
    ("unit", "text", "is_wrong"),
    [
        ("    ", "if x:\n        return 1", False),
        ("    ", "if x:\n      return 1", True),
        ("    ", "if x:\n\t\treturn 1", True),
        ("\t", "if x:\n\t\treturn 1", False),
        ("\t", "if x:\n        return 1", True),
        ("\t", "f(a,\n\t  b)", False),  # aligned with blanks after the indentation
        ("  ", "if x:\n    return 1", False),
        ("  ", "if x:\n        return 1", True),
        ("  ", "x = 1\n\n  y = 2", False),
    ],
)
def test_lines_are_indented_as_the_file(unit: str, text: str, is_wrong: bool) -> None:
    assert Inserted(indent_with(_GAP, unit), unit, text, "").is_indented_otherwise is is_wrong
