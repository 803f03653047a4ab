from hypothesis import given
from hypothesis import strategies as st

from inference.healing.token_tree import TokenTree, TreeBuilder

_paths = st.lists(st.lists(st.integers(0, 2), max_size=5).map(tuple), max_size=8)


def _spell(tree: TokenTree, node: int | None) -> tuple[int, ...]:
    return tuple(tree.branch_ids[branch] for branch in tree.find_path(node))


@given(_paths)
def test_each_path_ends_at_a_node_that_spells_it(paths: list[tuple[int, ...]]) -> None:
    builder = TreeBuilder()

    nodes = [builder.add_path(path) for path in paths]

    tree = builder.build((9,))
    assert [_spell(tree, node) for node in nodes] == paths


@given(_paths)
def test_no_two_nodes_spell_the_same_path(paths: list[tuple[int, ...]]) -> None:
    builder = TreeBuilder()
    for path in paths:
        builder.add_path(path)

    tree = builder.build((9,))

    beginnings = {path[:length] for path in paths for length in range(1, len(path) + 1)}
    assert sorted(_spell(tree, node) for node in range(len(tree.branch_ids))) == sorted(beginnings)


@given(_paths)
def test_a_node_comes_after_its_parent_and_is_one_deeper(paths: list[tuple[int, ...]]) -> None:
    builder = TreeBuilder()
    for path in paths:
        builder.add_path(path)

    tree = builder.build((9, 9))

    assert all(parent is None or parent < node for node, parent in enumerate(tree.parents))
    assert tree.find_depths() == [len(tree.find_path(node)) for node in range(len(tree.branch_ids))]
    assert tree.num_rows == 2 + len(tree.branch_ids)


def test_the_empty_path_ends_at_the_end_of_the_chain() -> None:
    assert TreeBuilder().add_path(()) is None
