from hypothesis import given
from hypothesis import strategies as st

from inference.healing.token_tree import TokenTree
from inference.model.pytorch.segment import build_tree_mask, find_row_positions
from tests.support.toys import token_trees


@given(tree=token_trees(), num_kept=st.integers(0, 3))
def test_a_row_attends_to_kept_tokens_the_chain_before_it_and_its_ancestors(tree: TokenTree, num_kept: int) -> None:
    mask = build_tree_mask(tree, num_kept)

    chain = [num_kept + row for row in range(len(tree.chain_ids))]
    expected = [{*range(num_kept), *chain[: row + 1]} for row in range(len(chain))]
    for branch in range(len(tree.branch_ids)):
        ancestors = {num_kept + len(chain) + at for at in tree.find_path(branch)}
        expected.append({*range(num_kept), *chain, *ancestors})
    seen = [set(range(num_kept + 1))] if mask is None else [set(row.nonzero()[:, 0].tolist()) for row in mask]
    assert seen == expected


@given(tree=token_trees())
def test_a_rows_position_is_the_number_of_tokens_before_it_on_its_path(tree: TokenTree) -> None:
    num_chain = len(tree.chain_ids)
    on_branches = [num_chain + len(tree.find_path(branch)) - 1 for branch in range(len(tree.branch_ids))]

    assert find_row_positions(tree) == [*range(num_chain), *on_branches]
