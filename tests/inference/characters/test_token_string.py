import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inference.characters.token_string import TokenString, read_all
from tests.support.character_toys import RandomModel, ToyReader, spell_out

_IDS = st.lists(st.integers(1, 3), max_size=6)


@given(token_ids=_IDS, count=st.integers(0, 8))
def test_an_ancestor_is_shorter_by_the_count_or_the_root(token_ids: list[int], count: int) -> None:
    root = TokenString((0,))

    ancestor = root.extend(token_ids).find_ancestor(count)

    assert spell_out(ancestor) == (0, *token_ids[: max(len(token_ids) - count, 0)])


@given(token_ids=st.lists(st.integers(1, 3), min_size=1, max_size=6), num_tokens=st.integers(2, 8))
def test_a_moved_window_keeps_the_root_and_the_last_tokens(token_ids: list[int], num_tokens: int) -> None:
    string = TokenString((0,)).extend(token_ids)
    string.log_mass = -1.5

    moved = string.move_window(num_tokens)

    assert spell_out(moved) == (0, *token_ids[-(num_tokens - 1) :])
    assert moved.log_mass == -1.5


def test_only_strings_without_a_row_are_read() -> None:
    reader = ToyReader(RandomModel(num_tokens=4, seed=1))
    strings = [TokenString((0,)).extend([token_id]) for token_id in (1, 2)]
    strings[0].log_probs = np.zeros(4)

    read_all(reader, strings)

    assert strings[0].log_probs is not None
    assert not strings[0].log_probs.any()
    assert strings[1].log_probs is not None
    assert strings[1].log_probs.any()
