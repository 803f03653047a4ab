import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.kv_cache import CacheShape, RowStore, SequenceCache, build_segment

_CPU = torch.device("cpu")


@st.composite
def _trees(draw: st.DrawFn) -> TokenTree:
    num_branches = draw(st.integers(0, 6))
    parents = [draw(st.sampled_from([None, *range(index)])) for index in range(num_branches)]
    return TokenTree((0,) * draw(st.integers(1, 4)), (0,) * num_branches, tuple(parents))


def _write(cache: SequenceCache, names: list[float]) -> list[float]:
    """Writes rows that carry a name each; returns the names that attention would read."""
    cache.reserve(len(names))
    rows = torch.tensor(names)[None, :, None].expand(1, -1, 2)
    keys, values = cache.write(0, rows, rows + 0.5)
    assert torch.equal(values, keys + 0.5)
    return [float(name) for name in keys[0, :, 0]]


@given(steps=st.lists(st.tuples(_trees(), st.integers(0, 6)), max_size=6))
def test_what_is_kept_is_the_chain_and_the_path_in_order(steps: list[tuple[TokenTree, int]]) -> None:
    cache = SequenceCache(CacheShape(1, 1, 2), torch.float32, _CPU, capacity=4)
    kept: list[float] = []
    for number, (tree, pick) in enumerate(steps):
        names = [100.0 * number + row for row in range(tree.num_rows)]
        node = None if pick >= len(tree.branch_ids) else pick

        seen = _write(cache, names)
        cache.keep(tree, node)

        assert seen == kept + names
        kept += [*names[: len(tree.chain_ids)], *(names[len(tree.chain_ids) + at] for at in tree.find_path(node))]
        assert cache.num_tokens == len(kept)


@given(tree=_trees(), num_kept=st.integers(0, 3))
def test_a_row_sees_the_kept_tokens_the_chain_before_it_and_its_own_ancestors(tree: TokenTree, num_kept: int) -> None:
    cache = SequenceCache(CacheShape(1, 1, 2), torch.float32, _CPU)
    cache.num_tokens = num_kept

    segment = build_segment(cache, tree, 0, _CPU)

    chain = [num_kept + row for row in range(len(tree.chain_ids))]
    expected = [{*range(num_kept), *chain[: row + 1]} for row in range(len(chain))]
    for branch in range(len(tree.branch_ids)):
        ancestors = {num_kept + len(chain) + at for at in tree.find_path(branch)}
        expected.append({*range(num_kept), *chain, *ancestors})
    seen = (
        [set(range(num_kept + 1))]
        if segment.mask is None
        else [set(row.nonzero()[:, 0].tolist()) for row in segment.mask]
    )
    assert seen == expected


@given(tree=_trees(), num_kept=st.integers(0, 3))
def test_a_rows_position_is_the_number_of_tokens_before_it_on_its_path(tree: TokenTree, num_kept: int) -> None:
    cache = SequenceCache(CacheShape(1, 1, 2), torch.float32, _CPU)
    cache.num_tokens = num_kept

    segment = build_segment(cache, tree, 0, _CPU)

    num_chain = len(tree.chain_ids)
    on_branches = [num_kept + num_chain + len(tree.find_path(branch)) - 1 for branch in range(len(tree.branch_ids))]
    assert segment.depths.tolist() == [*range(num_kept, num_kept + num_chain), *on_branches]


def test_room_that_cannot_be_had_is_an_overloaded_error_and_the_cache_is_as_before() -> None:
    cache = SequenceCache(CacheShape(1, 1, 2), torch.float32, _CPU)
    _write(cache, [1.0, 2.0])
    cache.keep(TokenTree((0, 0)), None)

    with pytest.raises(OverloadedError, match="keys and values of"):
        cache.reserve(1 << 48)

    assert _write(cache, [3.0]) == [1.0, 2.0, 3.0]


def test_a_cache_that_cannot_be_forked_is_an_overloaded_error() -> None:
    cache = SequenceCache(CacheShape(1, 1, 2), torch.float32, _CPU)
    cache._store = torch.empty(1).expand(1, 2, 1, 1 << 48, 2)  # a size that only a copy needs memory for

    with pytest.raises(OverloadedError, match="keys and values of"):
        cache.fork()


def test_a_row_store_that_cannot_grow_is_an_overloaded_error_and_as_before() -> None:
    store = RowStore(CacheShape(1, 1, 2), torch.float32, _CPU, capacity=4)

    with pytest.raises(OverloadedError, match="keys and values of"):
        store.grow(1 << 48)

    assert store.capacity == 4
