"""Where completions end because they repeat themselves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.loop_rule import LoopRule, _count_repeated, _iter_runs


@pytest.mark.parametrize(
    ("line_before", "text", "left"),
    [
        ("  x = ", "1\n  x = 1\n  x = 1\n  x = 1\n", "1"),
        ("", "1\n  x = 1\n  x = 1\n  x = 1\n", "1\n  x = 1\n  x = 1\n  x = 1\n"),
        ("", "a\nx = 1\nx = 1\nx = 1\nx = 1\n", "a\nx = 1"),
        ("", "a\nx = 1\r\nx = 1\r\nx = 1\r\nx = 1\r\n", "a\nx = 1"),
        ("", "a\n  x = 1\n  x = 1 \n  x = 1\n  x = 1\n", "a\n  x = 1"),
        ("", "a\nb\nc\nb\nc\nb\nc\n", "a\nb\nc"),
        ("", "a\nb\n\nb\n\nb\n\n", "a\nb"),
        ("", "a\nb\nc\nd\nc\nb\nc\nd\nc\nb\nc\nd\nc\n", "a\nb\nc\nd\nc"),
        ("", "a\n" + "\n" * 7, "a"),
        ("", "a \n" + " \n" * 7, "a "),
        ("", "\n" * 7, ""),
        ("", "x" + " and x" * 40, "x and x and x and x and "),
        ("", "[" + "(" * 140, "[" + "(" * 17),
        ("", "b = a." + "a_long_name_of_a_thing." * 7, "b = a" + ".a_long_name_of_a_thing" * 2),
        ("# ", "-" * 140, "-" * 17),
        ("self.b, ", "self.b, " * 9, "self.b, self.b, "),
    ],
)
def test_a_loop_is_cut_before_the_repetition(line_before: str, text: str, left: str) -> None:
    assert text[: LoopRule(line_before).find_end(text, len(text))] == left


@pytest.mark.parametrize(
    ("line_before", "text", "left"),
    [
        ('orders = [Order("joe", ', '"joe", ' * 9, '"joe"'),
        ("PRIMES = [2, 3, 5, 7, 11, ", "11, " * 9, "11"),
        ("values = [0, 0, 0, ", "0, " * 9, "0"),
        ("# Compute the mean of ", "the mean of " * 9, "the mean of"),
        ('PATTERN = re.compile(r"', r"(?!\s+)" * 9, r"(?!\s+)"),
        ("", "a = b\nreturn aaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "a = b\nreturn a"),
        ("# ", "-" * 140, "-" * 17),
    ],
)
def test_where_whole_lines_are_sent_a_row_is_cut_after_its_first_period(line_before: str, text: str, left: str) -> None:
    assert text[: LoopRule("a = 1\n" + line_before).find_end(text, len(text), sends_lines=True)] == left


@pytest.mark.parametrize(
    ("above", "text"),
    [
        ("[\n    0, 0, 0, 0, 0, 0, 0, 0,\n    ", "0, 0, 0, 0, 0, 0, 0, 0,\n]"),
        ("next(a)\nnext(a)\nnext(a)\nnext(a)\n\n", "next(a)\nnext(a)\nnext(a)\nnext(a)\n"),
        ("a\nb \na\nb\na\nb\n", "a\nb\na\nb\na\nb\n"),
    ],
)
def test_what_stands_in_the_text_before_like_that_is_no_loop(above: str, text: str) -> None:
    assert LoopRule(above).find_end(text, len(text)) is None
    assert LoopRule().find_end(text, len(text)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "    pass\n" * 3,
        "]\n]\n]\nx\n",
        "a\nb\n" * 2 + "a\n",
        "a\n" + "\n" * 6 + "b\n",
        "# " + "-" * 118 + "\n",
        "    [0, 0, 0, 0, 0, 0],\n    [0, 0, 0, 0, 1, 0],\n" * 2,
        "0, " * 6 + "\n",
        "return 0xFFFFFFFFFFFFFFFF\n",
        "".join(f"self.a{number} = a\n" for number in range(50)),
        "".join(f"import a{number}\n" for number in range(50)),
        (80 * " ").join("abc") + "\n",
        ("a_name_of_40_characters_in_a_long_line, " * 2),
        " " * 24 + "}\n" + " " * 20 + "}\n" + " " * 16 + "}\n",
    ],
)
def test_ordinary_code_is_no_loop(text: str) -> None:
    assert LoopRule().find_end(text, len(text)) is None


_units = st.lists(st.sampled_from(["a", "b", " ", "\n", "\r\n", "\n\n", "ab", "é", " \n", "()"]), max_size=5).map(
    "".join
)
_texts = st.lists(st.tuples(_units, st.integers(1, 9) | st.sampled_from([70, 140])), max_size=4).map(
    lambda parts: "".join(count * unit for unit, count in parts)
)


@settings(max_examples=5 * settings().max_examples)
@given(text=_texts, size=st.integers(1, 7))
def test_the_end_is_the_same_however_the_text_is_split_and_is_not_in_settled_text(text: str, size: int) -> None:
    rule, found, settled = LoopRule(), None, 0
    for end in range(size, len(text) + size, size):
        added = text[end - size : end]
        found = rule.find_end(text[:end], len(added)) if found is None else found
        settled = max(settled, rule.count_settled(text[:end])) if found is None else settled
    assert found == LoopRule().find_end(text, len(text))
    assert found is None or found >= settled


@pytest.mark.parametrize(
    ("text", "settled"),
    [
        ("", ""),
        ("    return foo", "    return foo"),
        ("a = 1\nb", "a = 1\nb"),
        ("a = 1\na", "a = 1"),
        ("a = 1\na = 2", "a = 1\na = 2"),
        ("a = 1\na = 2\na", "a = 1\na = 2"),
        ("a\nb\na\nb\na\n", "a\nb"),
        ("a\n  ", "a"),
        ("a\r", "a"),
        ("# " + 30 * "-", "# " + 17 * "-"),
        ("a_name_of_20_chars, a_name_of_20_chars, ", "a_name_of_20_chars, a_name_of_20_chars, "),
        ("# " + 30 * "-" + "\nb", "# " + 30 * "-" + "\nb"),
    ],
)
def test_what_a_running_repetition_may_cut_is_not_settled(text: str, settled: str) -> None:
    rule = LoopRule()

    assert rule.find_end(text, len(text)) is None
    assert text[: rule.count_settled(text)] == settled


@given(unit=st.text("ab", min_size=1, max_size=40), count=st.integers(1, 300), rest=st.text("ab ", max_size=20))
def test_of_all_periods_few_are_looked_at_and_they_decide(unit: str, count: int, rest: str) -> None:
    """The blanks that a model writes are looked at for each of its tokens, and other people's requests wait."""
    text = (rest + unit * count)[-150:]
    runs = [(len(text) - num - size, num, size) for size in range(1, 65) if (num := _count_repeated(text, size)) > 16]
    found = list(_iter_runs(text))

    assert [each.start for each in found][:1] == [start for start, _, _ in runs][:1]
    assert {each.start for each in found} == {start for start, _, _ in runs}
    assert len(found) <= 4 or len(unit) * count < 150
