from hypothesis import given
from hypothesis import strategies as st

from inference.healing.token_tree import TokenTree, TreeBuilder

_paths = st.lists(st.lists(st.integers(0, 2), max_size=5).map(tuple), max_size=8)


def _spell(tree: TokenTree, node: int | None) -> tuple[int, ...]:
    return tuple(tree.branch_ids[branch] for branch in tree.find_path(node))


@given(_paths)
def test_each_beginning_of_a_path_is_one_node_that_spells_it(paths: list[tuple[int, ...]]) -> None:
    builder = TreeBuilder()

    ends = [builder.add_path(path) for path in paths]

    tree = builder.build((9, 9))
    nodes = range(len(tree.branch_ids))
    assert [_spell(tree, end) for end in ends] == paths
    beginnings = {path[:length] for path in paths for length in range(1, len(path) + 1)}
    assert sorted(_spell(tree, node) for node in nodes) == sorted(beginnings)
    assert all(parent is None or parent < node for node, parent in enumerate(tree.parents))
    assert tree.find_depths() == [len(tree.find_path(node)) for node in nodes]
    assert tree.num_rows == 2 + len(nodes)
