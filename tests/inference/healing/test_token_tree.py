from hypothesis import given
from hypothesis import strategies as st

from inference.healing.token_tree import TokenTree, TreeBuilder
from tests.support.toys import token_trees

_paths = st.lists(st.lists(st.integers(0, 2), max_size=5).map(tuple), max_size=8)


@given(_paths)
def test_each_beginning_of_a_path_is_one_node_that_spells_it(paths: list[tuple[int, ...]]) -> None:
    builder = TreeBuilder()

    ends = [builder.add_path(path) for path in paths]

    tree = builder.build((9, 9))
    nodes = range(len(tree.branch_ids))
    assert [tree.spell_path(end) for end in ends] == paths
    beginnings = {path[:length] for path in paths for length in range(1, len(path) + 1)}
    assert sorted(tree.spell_path(node) for node in nodes) == sorted(beginnings)
    assert all(parent is None or parent < node for node, parent in enumerate(tree.parents))
    assert tree.find_depths() == [len(tree.find_path(node)) for node in nodes]
    assert tree.num_tokens == 2 + len(nodes)


@given(tree=token_trees())
def test_a_row_sees_the_chain_before_it_and_its_ancestors(tree: TokenTree) -> None:
    num_chain = len(tree.chain_ids)
    expected = [set(range(row + 1)) for row in range(num_chain)]
    paths = [tree.find_path(branch) for branch in range(len(tree.branch_ids))]
    expected += [{*range(num_chain), *(num_chain + at for at in path)} for path in paths]
    assert [set(row.nonzero()[0].tolist()) for row in tree.build_mask()] == expected
    assert tree.find_positions(3) == [*range(3, 3 + num_chain), *(2 + num_chain + len(path) for path in paths)]
