"""Where completions end because they have reached the text after the cursor. `|` is the cursor."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.suffix_rule import LineRemainderRule, SuffixRule, build_suffix_rule

OPEN, LIMITED = True, False


def _build(around: str) -> SuffixRule:
    return build_suffix_rule(*around.split("|"))


@pytest.mark.parametrize(
    ("is_open", "around", "text", "left"),
    [
        # It ends where it reaches the suffix, or its limit.
        (LIMITED, "print(|)", "name)", "name"),
        (LIMITED, "print(|)\n", "name)", "name"),
        (LIMITED, "print(|)\r\nmore()\r\n", "name)\r", "name"),
        (LIMITED, "print(|)", "len(name)", "len(name)"),  # a bracket that the text itself opens
        (LIMITED, "print(|)", "len(name))", "len(name)"),
        (LIMITED, "f(g(|)", "x)", "x)"),  # a bracket that the text before the cursor opens
        (LIMITED, "f(g(|)", "x))", "x)"),
        (LIMITED, "f(\n    g(|)\n)\n", "x)", "x"),  # the outer bracket is closed below
        (LIMITED, "f(\n    g(|)\n", "x)", "x)"),
        (LIMITED, 'print("|")', 'hello")', "hello"),
        (LIMITED, 's = "|"', 'hello"', "hello"),
        (LIMITED, 'co| = """\n    more\n', 'de = """', "de"),
        (LIMITED, 'print(|, "x")', '"hello", "x")', '"hello"'),
        (LIMITED, "print(|, b)", "a,", "a,"),  # not the whole rest of the line
        (LIMITED, "my_|value", "new_value", "new_"),
        (LIMITED, "x = |  # größe\n", "1  # größe", "1"),
        (LIMITED, "\tif |:\n\t\tpass\n", "x == y:", "x == y"),
        (LIMITED, "if |:\n", "x:\n    f(y:\n", "x"),  # the first line decides
        (LIMITED, "f(|)\ng()\n", "\n    a,\n    b(c),\n)\ng()", "\n    a,\n    b(c),\n"),
        (LIMITED, "f(|)\ng()\n", "\n    a,\n    b(c)\n)", "\n    a,\n    b(c)\n"),
        (LIMITED, "    retu|\n    return 1\n", "rn 1", ""),
        (LIMITED, "    retu|\n    return 10\n", "rn 1", "rn 1"),
        (LIMITED, "    pass|\n    pass\nx\n", "\nx", "\nx"),  # the cursor's line was the same before
        (LIMITED, "    retu|\n        return 1\n", "rn 1", "rn 1"),  # indented differently
        (LIMITED, "if a:\n    |\n    b = 2\n", "a = 1\n    b = 2", "a = 1"),
        (LIMITED, "if a:\n    |\r\n\r\n    b = 2\r\n", "a = 1\r\n\r\n    b = 2\r\n    ", "a = 1"),
        (LIMITED, "if a:\n    |\n\tb = 2\n", "a = 1\n    b = 2", "a = 1\n    b = 2"),  # a tab is not four blanks
        (LIMITED, "def f():\n    |\n    pass\n", "x()\n    pass\n    pass\n    pass", "x()\n    pass\n    pass"),
        (LIMITED, "def f():\n    |\n    pass", "pass\n\n\ndef g():\n    pass", "pass\n\n\ndef g():"),
        (LIMITED, "if (a) {\n    |\n}\n", "b\n}", "b"),
        (LIMITED, "f(\n    x, y|)\n", ", g(z)", ", g(z)"),  # the rest closes the outer bracket
        (LIMITED, 's = "("\nf(|)\n', "x)", "x"),  # the first bracket is none
        (LIMITED, "|\nα\nβ\nγ\n", "ω\nα\nβ\nγ\nω\n", "ω"),
        (LIMITED, "def f():\n    |\n    x.append(1)\n    return x\n", "x.append(1)", ""),
        # It is not finished: it ends once that is certain.
        (OPEN, "print(|)", "name)", "name)"),  # it may go on
        (OPEN, "print(|)", "name)\n", "name"),
        (OPEN, "|\na\nb\nc\nd\n", "x\na\nb\n", "x\na\nb\n"),
        (OPEN, "|\na\nb\nc\nd\n", "x\na\nb\nc\n", "x"),
        (OPEN, "|\na\nb\nc\nd\n", "x\na\nb\nd\n", "x\na\nb\nd\n"),
    ],
)
def test_a_text_ends_where_it_reaches_the_suffix(is_open: bool, around: str, text: str, left: str) -> None:
    assert text[: _build(around).find_end(text, is_open)] == left


@pytest.mark.parametrize("suffix", ["", " \n\t\n"])
def test_a_blank_suffix_ends_nothing(suffix: str) -> None:
    assert build_suffix_rule("x = ", suffix).find_end("1\n\nx = 1\n") is None


_LINES = ["a", "b", "ab", " a", "a ", "", " "]
_texts = st.lists(st.sampled_from(_LINES), min_size=1, max_size=6).map("\n".join)
_few_lines = st.lists(st.sampled_from(["ab", "b", ""]), min_size=1, max_size=5).map("\n".join)
_any_texts = st.text(alphabet="ab()\"' \n", max_size=14)


def _find_end_slowly(before: str, suffix: str, text: str) -> int | None:
    """The end of a limited text without brackets and quotes: each line is tried as the beginning of the suffix."""
    rest, *below = (line.rstrip() for line in suffix.split("\n"))
    below = [line for line in below if line]
    lines = [line.rstrip() for line in text.split("\n")]
    for number, line in enumerate(lines):
        start = sum(len(each) + 1 for each in text.split("\n")[:number])
        expected, further = below, [(each, True) for each in lines[number + 1 : -1]] + [(lines[-1], False)]
        further = [each for each in further if each[0]] if number + 1 < len(lines) else []
        if rest:
            is_start, end = line.endswith(rest), start + len(line) - len(rest)
        else:
            is_start = line != "" and below[:1] == [(before.split("\n")[-1] if number == 0 else "") + line]
            end = len(text[:start].rstrip())
            expected = below[1:]
        is_certain = len(expected) > 1 and further[:2] == [(each, True) for each in expected[:2]]
        agrees = is_certain or _begins(expected, further)
        if is_start and (agrees or (rest and number == 0)):
            return end
    return None


def _begins(expected: list[str], lines: list[tuple[str, bool]]) -> bool:
    """True if the lines are the first ones of the expected. Each says whether it is complete."""
    pairs = zip(expected, lines, strict=False)
    return len(lines) <= len(expected) and all(
        line == below or (not is_complete and below.startswith(line)) for below, (line, is_complete) in pairs
    )


@settings(max_examples=10 * settings().max_examples)
@given(before=st.sampled_from(["", "a", "b\n", "b\na"]), suffix=_texts, text=_texts)
def test_the_end_is_that_of_an_exhaustive_search(before: str, suffix: str, text: str) -> None:
    assert build_suffix_rule(before, suffix).find_end(text, LIMITED) == _find_end_slowly(before, suffix, text)


@settings(max_examples=20 * settings().max_examples)
@given(
    before=_any_texts,
    suffix=_any_texts | _few_lines,
    text=_any_texts | _few_lines,
    more=_any_texts | _few_lines,
    is_open=st.booleans(),
)
def test_a_certain_end_stays_settled_text_is_never_cut_and_what_is_cut_is_not_blank(
    before: str, suffix: str, text: str, more: str, is_open: bool
) -> None:
    rule = build_suffix_rule(before, suffix)
    certain, end = rule.find_end(text, OPEN), rule.find_end(text + more, is_open)
    assert certain is None or rule.find_end(text + more, OPEN) == certain
    assert end is None or end >= rule.count_settled(text)
    assert end is None or (text + more)[end:].strip() != ""


@pytest.mark.parametrize(
    ("around", "text", "end"),
    [
        pytest.param("|\n" + 3000 * "a", 1999 * "a", None, id="a line below that is not known to its end"),
        pytest.param("f(|)", "g(" + 1900 * "a" + ")", None, id="a bracket that the text opens"),
        pytest.param("f(|)", "g(" + 2100 * "a" + ")", 2102, id="it does not count if it is far"),
        pytest.param("x = 1\n" * 9000 + "f(|)\n" + "y = 2\n" * 9000, "x)", 1, id="a large file"),
    ],
)
def test_long_texts_are_compared_near_the_cursor_and_the_end_only(around: str, text: str, end: int | None) -> None:
    rule = _build(around)

    assert rule.find_end(text, LIMITED) == end
    assert len(rule.near_prefix) + len(rule.near_suffix) + sum(map(len, rule.lines_below)) < 10_000


@pytest.mark.parametrize(
    ("around", "text", "settled"),
    [
        ("f(|)", "a)", "a"),
        ("f(|)", "a)) ", "a)"),
        ("f(|)", "a)b", "a)b"),
        ("f(|, b)", "a, ", "a"),
        ("f(|, b)", "a, c", "a, c"),
        ("x = |\n    y = 1\n", "1 ", "1"),
        ("x = |\n    y = 1\n", "1\n    y", "1"),
        ("x = |\n    y = 1\n", "1\n    z", "1\n    z"),
        ("x = |\n    y = 1\n", "1\n    y = 1 ", "1"),
        ("    y|\n    y = 1\n", " = ", ""),
        ("    y|\n    y = 1\n", " + ", " +"),
    ],
)
def test_what_may_become_the_suffix_is_not_settled(around: str, text: str, settled: str) -> None:
    assert text[: _build(around).count_settled(text)] == settled


@pytest.mark.parametrize(
    ("around", "text", "left"),
    [
        ("self.asse|(image['palette'], '3/4/2')", "rtEqual(image['palette'], '256')", "rtEqual"),
        ("sum(|.total for order in self.orders)", "self.orders for order in self.orders)", "self"),
        ("n| = 3", "o = 4", "o"),
        ("(oper|.or_, obj)", "ator, obj)", "ator"),  # nothing goes on with the same sign
        ("with os_helper|temp_cwd():", ".temp_dir() as script_dir:", "."),
        ("sts |MockSpec(*even)", "= Mocks(*odd)", "= "),
        ("x.fai| = True", "l = False", "l"),
        ("x |= True", "l = False", "l "),
        ("total = 1 +| 2", " 1", ""),
        ("total = 1 +| 2", " 1 *", ""),
        ("total = 1 | 2", "+ 1", "+"),
        ('x = "|😀"', '""', ""),
        ('x = "|😀 b"', 'a😀"', "a"),
        ("x = foo(|, 1)", ")", ""),
        ("f(a|, c)", "(x, y), d)", "(x, y)"),  # the commas inside are no place
        ("def |(object_list, timeout):", "_wait(handles):", "_wait"),
        ("    def |object_list, timeout):", "_wait(handles):", "_wait("),
        ("f(|, c)", "a", None),
        ("sum(के|, x)", "ल = 2", "ल"),  # a mark is part of its word
        ("def f(|):", "self, a) -> int:", None),  # a rest without words
        ("f(|, c)", "a,\n  b", None),
    ],
)
def test_a_line_ends_where_the_rest_may_go_on(around: str, text: str, left: str | None) -> None:
    before, _, rest = around.partition("|")
    end = LineRemainderRule(before, rest).find_end(text)

    assert (None if end is None else text[:end]) == left


def test_blanks_before_what_may_go_on_with_the_rest_are_not_settled() -> None:
    assert LineRemainderRule("x = ", " = b").count_settled("a  ") == 1
    assert LineRemainderRule("x = ", "= b").count_settled("a  ") == 3


_line_texts = st.text(" ab(),.'\n", max_size=12)


@settings(max_examples=10 * settings().max_examples)
@given(before=_line_texts, rest=_line_texts, text=_line_texts, more=_line_texts)
def test_settled_text_of_a_line_is_never_cut(before: str, rest: str, text: str, more: str) -> None:
    rule = LineRemainderRule(before.rpartition("\n")[2], rest.partition("\n")[0].rstrip())
    end = rule.find_end(text + more)

    assert end is None or end >= rule.count_settled(text)
