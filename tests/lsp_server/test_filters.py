"""What is left of the model's text, and that it does not repeat the text around the cursor."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lsp_server.context import Context
from lsp_server.filters import Insertion, cut_at_placeholder, drop_repeated_above, drop_repeated_below, fit


@pytest.mark.parametrize(
    ("around", "text", "inserted"),
    [
        ("return Nod|", "e", "e"),
        ("x = |\n", "1\n", "1"),
        ("x = |\n", "  \n", None),
        ("print(|)", "name)", "name"),
        ("print(|)", "len(name)", "len(name)"),  # a bracket that the text itself opens is kept
        ("print(|)", "len(name))", "len(name)"),
        ('print("|")', 'hello")', "hello"),
        ("return |x\n", "not ", "not "),  # the blank separates it from the word
        ('input("|")\n', "Name: ", "Name: "),
        ("return |x\n", "  ", None),
        ("f(|)\n", "a, ", "a,"),
        ("f(g(|)", "x)", "x)"),  # a bracket that the text before the cursor opens is kept
        ("f(g(|)", "x))", "x)"),
        ("f(|)", "x)", "x"),
        ("f(g(|))", "x)", "x"),
        ("f(g(|))", "x))", "x"),
        ("f(g(|))", "h(x))", "h(x)"),
        ("f(g(|)) + 1", "h(x))", "h(x)"),
        ('f("|")', "x", "x"),
        ("if a:\n    |\n    b = 2\n", "a = 1\n    b = 2", "a = 1\n    b = 2"),  # the engine knows where to end
        ("{\n    {\n    |\n}\n", "}", "}"),  # the next line is indented differently
        ("def f():\n    |\n    return 1\n", "return 1", None),
        ("def f():\n    retu|\n    return 1\n", "rn 1", None),
        ("def f():\n    retu|\n    return 10\n", "rn 1", "rn 1"),
        ("a = [|]\n", "1,\n    2,\n", "1,"),  # several lines in the middle of a line are cut
        ("if a:|\n", "\n    b()\n", "\n    b()"),
        # Each filter is applied.
        ("x = |\n", 'key = "REDACTED"', "key ="),
        ("if a:\n\tb()\nif c:|\n", "\n    d()", "\n\td()"),
        ("|\nx = 1\n", "x = 1", None),
        ("x = 1\n|\n", "x = 1", None),
    ],
)
def test_the_text_is_made_to_fit_between_what_is_around_it(around: str, text: str, inserted: str | None) -> None:
    assert fit(text, Context(*around.split("|"))) == (None if inserted is None else Insertion(inserted))


@pytest.mark.parametrize(
    ("around", "text", "replaced"),
    [
        ("def f(|)\n", "self):\n    pass", ")"),
        ("def f(|)\n", "self):", ")"),
        ("f(|) + c", "a, b)  # note", ")"),
        ("f(g(|)) + c", "a))  # note", "))"),
        ("f(|) + c", "a  # note", ""),
        ("f(g(|) + c", "a)  # note", ""),  # one of the two brackets is missing
        ("def __len__(|)\n", "self):\n    return len(self.items", ""),  # the block ends before the bracket
    ],
)
def test_a_bracket_that_is_closed_already_is_replaced(around: str, text: str, replaced: str) -> None:
    assert fit(text, Context(*around.split("|"))) == Insertion(text, replaced)


@pytest.mark.parametrize("char", ["\x1b", "\r", "\0", "\x7f", "\x9b", "\u202a", "\u202e", "\u2066", "\u2069", "\ufffd"])
def test_a_suggestion_ends_before_a_control_character(char: str) -> None:
    assert fit(f"a\n\tb = {char}1", Context("", "")) == Insertion("a\n\tb =")
    assert fit(f"{char}a", Context("", "")) is None


_TEXTS = st.text("ab()\"' \n,", max_size=12)


@given(_TEXTS, _TEXTS)
def test_the_inserted_text_is_a_beginning_of_the_generated_text(text: str, suffix: str) -> None:
    insertion = fit(text, Context("", suffix))
    assume(insertion is not None)
    assert insertion is not None
    assert insertion.text != ""
    assert text.lstrip().startswith(insertion.text.lstrip())


@given(_TEXTS.filter(str.strip))
def test_at_the_end_of_a_line_white_space_is_removed_and_before_unrelated_text_more_than_a_line(text: str) -> None:
    assert fit(text, Context("x", "\n")) == Insertion(text.rstrip())
    first_line = text.partition("\n")[0]
    assert fit(text, Context("", "else:\n")) == (Insertion(first_line) if first_line.strip() else None)


@pytest.mark.parametrize(
    ("around", "text", "left"),
    [
        ("x = 1\n|", "x = 1", ""),
        ("x = 1\nx|", " = 1", ""),
        ("x = 1\n\n|", "x = 1", ""),
        ("x = 1\n|", "x = 10", "x = 10"),
        ("    x = 1\n|", "x = 1", "x = 1"),  # indented differently
        ("a()\nb()\n|", "a()\nb()", ""),
        ("a()\nb()\n|", "b()\nc()", "b()\nc()"),
        ("f(\n  (1),\n  ),\n|", "  ),", "  ),"),  # no letter and no digit
        ("|", "x = 1", "x = 1"),
        ("  await asyncio.sleep(0)\n  |", "await asyncio.sleep(0)", "await asyncio.sleep(0)"),
        ("  it->next();\n  |", "it->next();", "it->next();"),
        ("[\n  0,\n  |", "0,", "0,"),
        ("  x = f()\n  |", "x = f()", ""),
        ("  return f()\n  |", "return f()", ""),
        ("  self.a = a\n  self.b = b\n  |", "self.b = b", "self."),
        ("  self.width = 1\n  self.wide = 2\n  se|", "lf.wide = 2", "lf."),
        ("import os\nimport re\n|", "import re", "import "),
        ("import os\nimport re\nimport |", "re", ""),
        ("  x = 1\n  y = 2\n  |", "y = 2", ""),
        ("a = 1\n\tx = 2\n\t|", "x = 2", ""),
    ],
)
def test_lines_right_above_are_not_repeated(around: str, text: str, left: str) -> None:
    assert drop_repeated_above(text, Context(*around.split("|"))) == left


@pytest.mark.parametrize(
    ("around", "text", "is_dropped"),
    [("|\nx = 1\n", "x = 1", True), ("x|\n\nx = 1\n", " = 1", True), ("|\nx = 10\n", "x = 1", False)],
)
def test_lines_right_below_are_not_repeated(around: str, text: str, is_dropped: bool) -> None:
    assert (drop_repeated_below(text, Context(*around.split("|"))) == "") == is_dropped


@pytest.mark.parametrize(
    ("around", "text", "kept"),
    [
        ("a = 1\n|", 'password = "REDACTED"', "password = "),
        ("a = 1\n|", '"REDACTED"', ""),
        ("a = 1\n|", "f(x)\ntoken = REDACTED\ny", "f(x)\ntoken = "),
        ("a = 1\n|", 'x = "redacted"', 'x = "redacted"'),
        # A word of the file itself is kept.
        ("REDACTED = 1\nx = |", "REDACTED", "REDACTED"),
        ("x = |\nREDACTED", "REDACTED", "REDACTED"),
    ],
)
def test_the_text_ends_before_the_placeholder(around: str, text: str, kept: str) -> None:
    assert cut_at_placeholder(text, Context(*around.split("|"))) == kept
