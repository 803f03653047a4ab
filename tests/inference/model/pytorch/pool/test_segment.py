from hypothesis import given
from hypothesis import strategies as st

from inference.healing.token_tree import TokenTree
from inference.model.pytorch.pool import build_lone_segment, build_tree_mask, find_row_positions
from tests.support.toys import token_trees


@given(tree=token_trees(), data=st.data())
def test_a_row_attends_to_the_chain_before_it_and_its_ancestors(tree: TokenTree, data: st.DataObject) -> None:
    num_chain = len(tree.chain_ids)
    num_stored = 0 if num_chain else data.draw(st.integers(0, len(tree.branch_ids) - 1))

    mask = build_tree_mask(tree, num_stored)

    expected = [set(range(row + 1)) for row in range(num_chain)]
    for branch in range(len(tree.branch_ids)):
        expected.append({*range(num_chain), *(num_chain + at for at in tree.find_path(branch))})
    seen = [{0}] if mask is None else [set(row.nonzero()[0].tolist()) for row in mask]
    assert seen == expected[num_stored:]


@given(tree=token_trees())
def test_a_rows_position_is_the_number_of_tokens_before_it_on_its_path(tree: TokenTree) -> None:
    num_chain = len(tree.chain_ids)
    on_branches = [num_chain + len(tree.find_path(branch)) - 1 for branch in range(len(tree.branch_ids))]

    assert find_row_positions(tree) == [*range(num_chain), *on_branches]


def test_a_lone_segment_sees_its_own_rows_at_any_positions() -> None:
    segment = build_lone_segment(range(5, 8))

    assert segment.planes is None
    assert segment.positions.tolist() == segment.key_positions.tolist() == [5, 6, 7]
    assert segment.visible is not None
    assert segment.visible.tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert (segment.num_rows, segment.num_open) == (3, 0)
