"""Where completions end that would replace the rest of the cursor's line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.line_remainder_rule import LineRemainderRule


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


_texts = st.text(" ab(),.'\n", max_size=12)


@settings(max_examples=10 * settings().max_examples)
@given(before=_texts, rest=_texts, text=_texts, more=_texts)
def test_settled_text_is_never_cut(before: str, rest: str, text: str, more: str) -> None:
    rule = LineRemainderRule(before.rpartition("\n")[2], rest.partition("\n")[0].rstrip())
    end = rule.find_end(text + more)

    assert end is None or end >= rule.count_settled(text)
