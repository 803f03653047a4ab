import ast
import importlib
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inference.engine.python_code import find_indent
from inference.engine.stopping import BlockRule, LineRule, build_extent_rule, count_stable, find_stop
from inference.protocol.completion import Extent

_letters = st.text(alphabet="ab\n\r )}\t", max_size=12)


@pytest.mark.parametrize(
    ("extent", "prefix", "suffix", "rule"),
    [
        (Extent.SINGLE_LINE, "def f():", "", LineRule()),
        (Extent.AUTO, "x = ", "", LineRule()),
        (Extent.AUTO, "def f():", "", BlockRule(1, closes=True)),
        (Extent.AUTO, "def f(): ", "\nx", BlockRule(1, closes=True)),
        (Extent.AUTO, "def f():", ")", LineRule()),
        (Extent.AUTO, "    if x:\n        ", "", BlockRule(5, closes=True)),
        (Extent.AUTO, "def f(a,\n      b):", "", BlockRule(1, closes=True)),
        (Extent.AUTO, "def f(a,\n      b):\n    ", "", BlockRule(1, closes=True)),
        (Extent.AUTO, "f(\n\n    ", "", BlockRule(1, closes=True)),
        (Extent.AUTO, "x = 1\n    ", "", LineRule()),
        (Extent.AUTO, "", "", LineRule()),
        (Extent.BLOCK, "    x = ", "", BlockRule(4, closes=False)),
        (Extent.BLOCK, "\tx = {", "", BlockRule(9, closes=True)),
        (Extent.BLOCK, "x = ", ")", BlockRule(0, closes=False)),
        (Extent.UNLIMITED, "    if x:", "", BlockRule(0, closes=False)),
    ],
)
def test_the_stopping_rule_follows_the_text_around_the_cursor(
    extent: Extent, prefix: str, suffix: str, rule: LineRule | BlockRule
) -> None:
    assert build_extent_rule(extent, prefix, suffix) == rule


@pytest.mark.parametrize(
    ("text", "end"), [("ab", None), ("ab\n", 2), ("ab\r\nc", 2), ("\n", 0), ("a\rb\n", 3), ("ab\r", None)]
)
def test_a_line_ends_before_its_line_end(text: str, end: int | None) -> None:
    assert LineRule().find_end(text) == end


@pytest.mark.parametrize(
    ("rule", "text", "end"),
    [
        (BlockRule(4, closes=False), "a\n    b\n", None),
        (BlockRule(4, closes=False), "a\n    b\nc", 7),
        (BlockRule(4, closes=False), "a  \n\n\nc", 1),
        (BlockRule(4, closes=False), "a\n\n    b", None),
        (BlockRule(4, closes=False), "a\n  ", None),
        (BlockRule(4, closes=False), "a\r\n  \r\nc", 1),
        (BlockRule(1, closes=True), "\n    a\n}", None),
        (BlockRule(1, closes=True), "\n    a\n})\nb", 9),
        (BlockRule(1, closes=True), "\r\n    a\r\n}\r\nb", 10),
        (BlockRule(1, closes=True), "\n    a\nb", 6),
        (BlockRule(1, closes=True), "\n    a\n} else {\n    b\n}\nc", 23),
        (BlockRule(1, closes=True), "\n    a\n} else {\nc", 15),
        (BlockRule(1, closes=False), "\n    a\n}", 6),
        (BlockRule(9, closes=True), "\n\t\ta\n\tb", 4),
    ],
)
def test_a_block_ends_before_the_first_less_indented_line(rule: BlockRule, text: str, end: int | None) -> None:
    assert rule.find_end(text) == end


@given(text=_letters, more=_letters, min_indent=st.integers(0, 3), closes=st.booleans())
def test_more_text_does_not_move_a_found_end(text: str, more: str, min_indent: int, closes: bool) -> None:
    for rule in (LineRule(), BlockRule(min_indent, closes)):
        end = rule.find_end(text)

        assert end is None or rule.find_end(text + more) == end


@pytest.mark.parametrize(("line", "indent"), [("", 0), ("  a", 2), ("\ta", 8), (" \ta", 8), ("\t a", 9), ("    ", 4)])
def test_indentation_is_counted_in_columns(line: str, indent: int) -> None:
    assert find_indent(line) == (indent if line.strip() else len(line.expandtabs(8)))


@given(
    text=st.text(alphabet="ab", max_size=8), stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=3), max_size=3)
)
def test_the_first_stop_string_is_found(text: str, stops: list[str]) -> None:
    found = [start for start in range(len(text)) if any(text.startswith(stop, start) for stop in stops)]

    assert find_stop(text, tuple(stops)) == (found[0] if found else None)


@settings(max_examples=10 * settings().max_examples)
@given(
    text=st.text(alphabet="ab", max_size=8),
    more=st.text(alphabet="ab", max_size=4),
    stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3),
)
def test_stable_text_never_becomes_part_of_a_stop_string_and_what_waits_could(
    text: str, more: str, stops: list[str]
) -> None:
    assume(find_stop(text, tuple(stops)) is None)
    num_stable = count_stable(text, tuple(stops))
    found = find_stop(text + more, tuple(stops))
    assert found is None or found >= num_stable
    assert num_stable == len(text) or any(stop.startswith(text[num_stable:]) for stop in stops)


@pytest.mark.parametrize(
    ("rule", "text", "settled"),
    [
        (LineRule(), "a ", "a "),
        (LineRule(), "a\r", "a"),
        (BlockRule(4, closes=True), "a ", "a"),
        (BlockRule(4, closes=True), "a\n     \n ", "a"),
        (BlockRule(4, closes=True), "a\n    b", "a\n    b"),
        (BlockRule(4, closes=True), "a\n    b\n} ", "a\n    b\n} "),
        (BlockRule(4, closes=True), "a\n    b\n}\r", "a\n    b\n}"),
        (BlockRule(0, closes=False), "a \n ", "a \n "),
    ],
)
def test_what_the_end_of_a_line_or_block_may_cut_is_not_settled(
    rule: LineRule | BlockRule, text: str, settled: str
) -> None:
    assert rule.find_end(text) is None
    assert text[: rule.count_settled(text)] == settled


@pytest.mark.parametrize("extent", [Extent.AUTO, Extent.UNLIMITED])
@pytest.mark.parametrize(
    ("prefix", "text", "left"),
    [
        # A line goes back to a level at which nothing was begun.
        ("class A:\n        ", "@property\n    def g(self): ...", "@property"),
        ("if x:\n        ", "y()\n    z()", "y()"),
        ("def f():\n    ", "try:\n        g()\nexcept E:\n    pass", "try:\n        g()"),
        ("def f():\n    ", "for x in y:\nreturn x", "for x in y:"),
        ("def f():\n    ", "try:\n        g()\n    x = 1", "try:\n        g()"),
        ("def f():\n    try:\n        g()\n    ", "except E:\n        h()\n    finally:\n        g()\n    x = 1", None),
        # A clause belongs to nothing.
        ("if x:\n    ", "y()\n    else:\n        z()", "y()"),
        ("if x:\n    y()\n    ", "else:\n        z()", ""),
        ("while x:\n    ", "y()\n    except E:\n        z()", "y()"),
        ("match x:\n    case 1:\n        ", "y()\n        case 2:\n            z()", "y()"),
        # What the text itself has opened stays.
        ("def f():\n    ", "if (a and\n            b): c()\n    elif d:\n        e()\n    else:\n        g()", None),
        ("def f():\n    ", "try:\n        g()\n    except E:\n        h()\n    finally:\n        i()", None),
        ("def f():\n    ", "match x:\n        case 1:\n            y()\n        case 2:\n            z()", None),
        ("def f():\n    ", "x = g(\n1, 2\n)\n    return x", None),
        ("def f():\n    ", 'x = """\ntry: this\n"""\n    return x', None),
        ("def f():\n    ", "x = a + \\\nb\n    return x", None),
        ("def f():\n    ", "@a\n    # why\n    def g(b,\n          c):\n        d()\n    return g", None),
    ],
)
def test_python_ends_where_a_line_cannot_stand(prefix: str, text: str, left: str | None, extent: Extent) -> None:
    rule = build_extent_rule(extent, prefix, "", "src/a.py")
    if extent is Extent.UNLIMITED or isinstance(rule, BlockRule) or left == "":
        assert rule.find_end(text + "\n") == (None if left is None else len(left))
    for end in range(len(text)):
        part = text[:end]
        found = rule.find_end(part)
        assert found is None or part[:found] == text[: rule.find_end(text)]
        assert found is not None or text[: rule.find_end(text)].startswith(part[: rule.count_settled(part)])


_SWITCH = "int f(int x) {\n    switch (x) {\n    case 1:\n        return 1;\n    case 2:\n"
_CASE = "    case 3:\n        return 2;\n"
_YAML = "jobs:\n  a:\n    steps:\n      - uses: b\n        with:\n"


@pytest.mark.parametrize(
    ("prefix", "text", "path"),
    [
        *((_SWITCH, _CASE, path) for path in ("src/a.c", "A.java", "a.js", "")),
        *(("while it is so:\n", "for example:\n- one\n- two\n", path) for path in ("a.md", "", "Untitled-1")),
        *((_YAML, "          x: 1\n          if:\n          y: 2\n", path) for path in ("a.yml", "")),
        ("class A:\n  def f(x: Int): Int =\n    ", "x match\n      case 1 => 2\n    else:\n      3\n", ""),
        ("def f(x):\n    ", "for x in y:\n    - z\n", "a.md"),
    ],
)
def test_text_of_another_language_is_not_judged_as_python(prefix: str, text: str, path: str) -> None:
    assert build_extent_rule(Extent.UNLIMITED, prefix, "", path).find_end(text) is None
    assert build_extent_rule(Extent.AUTO, prefix, "", path).find_end(text) != 0


@pytest.mark.parametrize("path", ["", "a.py", "A.PYI", "a.ipynb"])
def test_python_is_known_by_its_path_and_without_one_by_a_function(path: str) -> None:
    rule = build_extent_rule(Extent.AUTO, "async def f(\n    a, b\n) -> int:\n    ", "", path)
    assert rule.find_end("try:\n        g()\n    x = 1\n") == len("try:\n        g()")


@pytest.mark.parametrize("name", ["bisect", "contextlib", "textwrap", "queue"])
def test_the_true_text_of_a_block_of_python_ends_where_the_block_does(name: str) -> None:
    path = importlib.import_module(name).__file__
    assert path is not None
    source = Path(path).read_text()
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module) or not isinstance(body, list) or lines[body[0].lineno - 2].strip()[-1:] != ":":
            continue
        first, end = body[0].lineno - 1, body[-1].end_lineno
        start = len(lines[first]) - len(lines[first].lstrip())
        prefix = "\n".join([*lines[:first], lines[first][:start]])
        rest = "\n".join([lines[first][start:], *lines[first + 1 : end + 30]])
        block = "\n".join([lines[first][start:], *lines[first + 1 : end]])

        found = rest[: build_extent_rule(Extent.AUTO, prefix, "", "a.py").find_end(rest)]

        assert found.startswith(block)
        assert all(line.lstrip()[:1] in ("", "#") for line in found.removeprefix(block).split("\n"))
