import pytest

from inference.brackets import count_faults, match_brackets


@pytest.mark.parametrize(
    ("text", "lacking", "unopened"),
    [
        ("f(a[0], {", ")}", ""),
        ("a) + b]", "", ")]"),
        ("f(]", ")", "]"),
        ("def f(\n    a,\n):\n    g(", ")", ""),
        ("print('(')\nx = (1)", ")", ""),  # of the literal, by the next line
        ("if x:\n    f('('\ny = 1)", "))", ")"),
        ("f(\n\n  a)", "", ""),
    ],
)
def test_a_bracket_is_closed_in_lines_that_are_not_indented_less(text: str, lacking: str, unopened: str) -> None:
    assert match_brackets(text) == (lacking, unopened)


@pytest.mark.parametrize(
    ("line", "num_faults"),
    [
        ("f('a", 2),
        ("f('a')", 0),
        ('"it\'s")', 1),
        ("`'\"", 1),
        ('"""text', 1),
        ('"""it\'s "a" text"""', 0),
        ("'''Don't.'''", 0),
        ("'''Don't.''", 1),
        ('"a\\"b"', 0),
        ("f(x)  # don't", 0),
        ("f(b'\\'')", 0),
        ("fn f<'a>(x: &'a str)", 0),
    ],
)
def test_a_string_that_is_left_open_is_a_fault(line: str, num_faults: int) -> None:
    assert count_faults(line) == num_faults
