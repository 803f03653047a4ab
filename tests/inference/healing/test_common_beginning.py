from hypothesis import given
from hypothesis import strategies as st

from inference.healing.heal_point import count_common


@given(text=st.text("ab", max_size=20), other=st.text("ab", max_size=20))
def test_common_characters_are_counted(text: str, other: str) -> None:
    common = count_common(text, other)

    assert text[:common] == other[:common]
    assert text[common : common + 1] != other[common : common + 1] or not text[common:] or not other[common:]


@given(num_common=st.integers(0, 300), num_after=st.integers(0, 300), num_other=st.integers(0, 300))
def test_long_texts_are_compared_up_to_where_they_differ(num_common: int, num_after: int, num_other: int) -> None:
    text, other = "a" * num_common + "b" * num_after, "a" * num_common + "c" * num_other

    assert count_common(text, other) == count_common(list(map(ord, text)), list(map(ord, other))) == num_common


@given(first=st.lists(st.integers(0, 1), max_size=20), second=st.lists(st.integers(0, 1), max_size=20))
def test_common_tokens_are_counted(first: list[int], second: list[int]) -> None:
    common = count_common(first, second)

    assert first[:common] == second[:common]
    assert common == min(len(first), len(second)) or first[common] != second[common]
