"""The indentation of suggestions is that of the file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.context import Context
from lsp_server.indentation import find_open_quotes, find_unit, match_indentation, write_blanks

_TABS = "class A:\n\tdef f(self):\n\t\treturn 1\n\n"
_TWO = "class A:\n  def f(self):\n    return 1\n\n"
_FOUR = "class A:\n    def f(self):\n        return 1\n\n"


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        *((_TABS, "\t"), (_TWO, "  "), (_FOUR, "    "), ("a = 1\nb = 2\n", None)),
        ("x = f(a,\n      b)\ny = 1\n", None),  # aligned with a bracket
        ("def f(a,\n      b):\n    pass\n", "    "),
        ('p("(")\nf(a, {\n  b: 1,\n})\n', "  "),
    ],
)
def test_the_unit_is_read_from_the_text_around_the_cursor(text: str, unit: str | None) -> None:
    assert find_unit(Context(text, "")) == unit
    assert find_unit(Context("", "\n" + text)) == unit


@pytest.mark.parametrize(
    ("prefix", "text", "written"),
    [
        (_TABS + "if x:", "\n    y()\nz()", "\n\ty()\nz()"),
        (_TABS + "if x:", "\n    if y:\n        z()\n", "\n\tif y:\n\t\tz()\n"),
        (_TWO + "if x:", "\n    y()\nz()", "\n  y()\nz()"),
        (_FOUR + "if x:", "\n  y()\n  if z:\n    w()", "\n    y()\n    if z:\n        w()"),
        (_TWO + "class B:\n  def g(self):", "\n      return 2\n", "\n    return 2\n"),
        (
            _TWO + "class B:\n  def g(self):\n    return",
            " 2\n\n  def h(self):\n    pass",
            " 2\n\n  def h(self):\n    pass",
        ),
        (_FOUR + "x = f(", "\n    a,\n    b,\n)\n", "\n    a,\n    b,\n)\n"),
        (_FOUR + "x = f(a,", "\n      b)\n", "\n      b)\n"),  # under the opening bracket
        (_TABS + "x = f(", "\n    a,\n)", "\n\ta,\n)"),
        ("a = 1\nif x:", "\n  y()", "\n  y()"),  # the file shows no unit
        (_FOUR + "x = 1", "", ""),
        (_TWO + "  @property\n  ", "  def g(self):\n        return 2", "def g(self):\n    return 2"),
        (_TWO + "if x:\n  ", "  if y:\n        z()\n    w()", "if y:\n    z()\n  w()"),
        (_TWO + "if x:\n", "    y()\n    z()", "  y()\n  z()"),
        (_TABS + "if x:\n", "    y()\n    z()", "\ty()\n\tz()"),
        (_FOUR + "if x:\n", "    y()\nz()", "    y()\nz()"),
        (_FOUR + "class B:\n    x = 1\n\n", "    def g(self):\n        pass", "    def g(self):\n        pass"),
        (_FOUR + "    ", "x = 1\n    y = 2", "x = 1\n    y = 2"),
        (_FOUR + "if x: y = {", "\n    1: 2,\n}", "\n    1: 2,\n}"),
        (  # a docstring, as its block
            _TWO + "class B:\n  def g():",
            '\n        """Do it.\n\n        And:\n          that\n        """\n        return 1',
            '\n    """Do it.\n\n    And:\n      that\n    """\n    return 1',
        ),
    ],
)
def test_lines_get_the_indentation_of_the_file(prefix: str, text: str, written: str) -> None:
    assert match_indentation(text, Context(prefix, "")) == written


@pytest.mark.parametrize(
    ("text", "language_id", "sent"),
    [
        (_TABS + "\tdef g(self):▏\t# a\n\t\tb\tc\n", "python", _FOUR + "    def g(self):▏\t# a\n        b\tc\n"),
        (_TABS + "▏", "go", _TABS + "▏"),
        (_TWO + "▏", "python", _TWO + "▏"),
        (_FOUR + "    x = f(\n\t\t▏", "python", _FOUR + "    x = f(\n\t\t▏"),  # not indented with tabs
    ],
)
def test_tabs_of_python_are_sent_as_blanks(text: str, language_id: str, sent: str) -> None:
    assert write_blanks(Context(*text.split("▏")), language_id) == Context(*sent.split("▏"))


_LOOP = "    for x in y:\n        if x:\n            f(x)\n    return 1"


@pytest.mark.parametrize(
    ("before", "text"),
    [
        (_FOUR + "def g(y):\n", _LOOP),  # the cursor is in the first column
        (_FOUR + "def g(y):\n  ", _LOOP[2:]),
        (_FOUR + "def g(y):\n", "\n" + _LOOP),
        (
            _FOUR + "def g(y):\n    for x in y:\n        if x:\n            f(x)\n",
            "        else:\n            g(x)\n    return 1",
        ),
        (_FOUR, 'if y == "#":\n' + _LOOP),  # what looks like a comment hides that the line opens a block
        (_FOUR, "if x and \\\n  y:\n    f(x)\n    g(x)"),
        # In other languages, a line after a colon may be as deep.
        ("switch (x) {\n  case 1:\n    f();\n  ", "case 2:\n  case 3:\n    g();"),
        ("# Notes\n\n", "for example:\n- a\n- b"),
        # Lines of texts keep their columns.
        (_FOUR + "x = ", '"""\n  abc:\n  def\n\n"""\ny = 1'),
        (_FOUR + "if x:\n    y = ", '"""\nabc\n"""\n    z = 1'),
        (_FOUR + "def g():\n    ", '"""Do it.\n\n    if a:\n    b\n    """\n    return 1'),
        (_FOUR + 'def g():\n    """Do it.\n\n    Then', ' that:\n    a\n  b\n    """\n    return 1'),
    ],
)
def test_blocks_and_texts_of_the_suggestion_keep_their_depth(before: str, text: str) -> None:
    assert match_indentation(text, Context(before, "")) == text


@pytest.mark.parametrize(
    ("before", "text", "left"),
    [
        (_FOUR + "class B:\n    def g(self):\n        return", " 2\n  x = 1\n", " 2"),
    ],
)
def test_the_text_ends_before_a_line_that_returns_to_no_level_of_the_file(before: str, text: str, left: str) -> None:
    assert match_indentation(text, Context(before, "")) == left


def test_indentation_inside_texts_is_not_taken_for_the_unit() -> None:
    pattern = "".join(f"{' ' * number}any\n" for number in (1, 12, 30))
    assert find_unit(Context(f'x = """\n{pattern}"""\nif a:\n    b()\n', "")) == "    "


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["if a:", "b()", "c = 1"])), max_size=8))
def test_code_with_the_files_own_indentation_is_not_changed(lines: list[tuple[int, str]]) -> None:
    level, written, opens = 0, [], True
    for wanted, code in lines:
        level = level + 1 if opens else min(wanted, level)
        written.append("    " * level + code)
        opens = code.endswith(":")
    text = "\n" + "\n".join(written)
    assert match_indentation(text, Context(_FOUR + "if x:", "")) == text


@given(
    st.text("ab:() \t\n", max_size=40), st.sampled_from([_TABS, _TWO, _FOUR, ""]), st.text("ab:() \t\n", max_size=20)
)
def test_only_indentation_changes_and_the_end_may_be_cut(text: str, file: str, line: str) -> None:
    written = match_indentation(text, Context(file + line, ""))
    old, new = text.split("\n"), written.split("\n")
    assert len(new) <= len(old)
    assert new[0].lstrip(" \t") == old[0].lstrip(" \t")
    assert [each.lstrip(" \t") for each in new[1:]] == [each.lstrip(" \t") for each in old[1 : len(new)]]


@pytest.mark.parametrize(
    ("code", "opened", "expected"),
    [
        ("x = 1", None, None),
        ('"""a', None, '"""'),
        ('"""a"""', None, None),
        ("'''a\"\"\"", None, "'''"),
        ('b"""', '"""', None),
        ('b""" + """', '"""', '"""'),
        ("'''", '"""', '"""'),
    ],
)
def test_the_open_quotes_are_found(code: str, opened: str | None, expected: str | None) -> None:
    assert find_open_quotes(code, opened) == expected
