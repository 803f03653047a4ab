"""Where completions end because they repeat themselves."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.loop_rule import LoopRule


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
        ("", "x" + " and x" * 40, "x and " * 4),
        ("", "[" + "(" * 140, "[" + "(" * 17),
        ("", "b = a." + "a_long_name_of_a_thing." * 7, "b = a" + ".a_long_name_of_a_thing" * 2),
    ],
)
def test_a_loop_is_cut_before_the_repetition(line_before: str, text: str, left: str) -> None:
    assert text[: LoopRule(line_before).add(text)] == left


@pytest.mark.parametrize(
    "text",
    [
        "    pass\n" * 3,
        "]\n]\n]\nx\n",
        "a\nb\n" * 2 + "a\n",
        "a\n" + "\n" * 6 + "b\n",
        "# " + "-" * 118 + "\n",
        "    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],\n    [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],\n" * 2,
        "0, " * 40 + "\n",
        "".join(f"self.a{number} = a\n" for number in range(50)),
        "".join(f"import a{number}\n" for number in range(50)),
        (80 * " ").join("abc") + "\n",
        ("a_name_of_40_characters_in_a_long_line, " * 3),
        " " * 24 + "}\n" + " " * 20 + "}\n" + " " * 16 + "}\n",
    ],
)
def test_ordinary_code_is_no_loop(text: str) -> None:
    assert LoopRule().add(text) is None


_units = st.lists(st.sampled_from(["a", "b", " ", "\n", "\r\n", "\n\n", "ab", "é", " \n", "()"]), max_size=5).map(
    "".join
)
_texts = st.lists(st.tuples(_units, st.integers(1, 9) | st.sampled_from([70, 140])), max_size=4).map(
    lambda parts: "".join(count * unit for unit, count in parts)
)


def _find_end_slowly(text: str) -> int | None:
    """The end of a text whose loops have at most three lines, or four characters."""
    for end in range(1, len(text) + 1):
        found = _find_loop_of_lines(text[:end]) if text[end - 1] == "\n" else _find_loop_in_line(text[:end])
        if found is not None:
            return found
    return None


def _find_loop_of_lines(text: str) -> int | None:
    lines = text.split("\n")[:-1]
    contents = [line.rstrip() for line in lines]
    for size in range(1, 17):
        repeated = 0
        while len(lines) - 1 - repeated - size >= 0 and contents[-1 - repeated] == contents[-1 - repeated - size]:
            repeated += 1
        blank = not any(contents[-size:])
        if repeated >= (6 if blank else 3 if size == 1 else 2 * size):
            kept = lines[: len(lines) - repeated]
            while len(kept) > 1 and not kept[-1].strip():
                kept.pop()
            return len("\n".join(kept).removesuffix("\r"))
    return None


def _find_loop_in_line(text: str) -> int | None:
    line = text.rpartition("\n")[2]
    for size in range(1, 65):
        repeated = 0
        while len(line) - 1 - repeated - size >= 0 and line[-1 - repeated] == line[-1 - repeated - size]:
            repeated += 1
        if repeated >= max(120, 3 * size):
            return len(text) - repeated + size * math.ceil(16 / size)
    return None


@settings(max_examples=2 * settings().max_examples)
@given(text=_texts, size=st.integers(1, 7))
def test_the_end_is_that_of_an_exhaustive_search_however_the_text_is_split(text: str, size: int) -> None:
    rule, found = LoopRule(), None
    for start in range(0, len(text), size):
        found = rule.add(text[start : start + size]) if found is None else found

    assert found == _find_end_slowly(text)


@settings(max_examples=5 * settings().max_examples)
@given(text=_texts, size=st.integers(1, 7))
def test_settled_text_is_never_cut(text: str, size: int) -> None:
    rule, settled = LoopRule(), 0
    for start in range(0, len(text), size):
        end = rule.add(text[start : start + size])
        if end is not None:
            assert end >= settled
            return
        settled = max(settled, rule.count_settled())


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
        ("# " + 30 * "-" + "\nb", "# " + 30 * "-" + "\nb"),
    ],
)
def test_what_a_running_repetition_may_cut_is_not_settled(text: str, settled: str) -> None:
    rule = LoopRule()

    assert rule.add(text) is None
    assert text[: rule.count_settled()] == settled


def test_of_a_long_text_few_lines_are_kept() -> None:
    rule = LoopRule()
    for number in range(3000):
        rule.add(f"line {number} of a long text {'x' * (number % 40)}\n")

    assert len(rule._lines) < 50
