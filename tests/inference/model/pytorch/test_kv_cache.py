import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.pytorch.kv_cache import RowStore, SequenceCache
from inference.model.pytorch.planes import LayerShape
from inference.model.pytorch.segment import find_row_positions
from tests.support.toys import token_trees

_CPU = torch.device("cpu")
_LAYERS = (LayerShape(1, 2, 3), LayerShape(2, 3, 2))  # no two shapes are equal


def _write(cache: SequenceCache, names: list[float]) -> list[float]:
    """Writes rows with a name each, to all layers. Returns the names of the rows that attention would read."""
    cache.reserve(len(names))
    for number, layer in enumerate(_LAYERS):
        rows = torch.tensor(names)[None, :, None] + number
        new_keys = rows.expand(layer.num_kv_heads, -1, layer.key_dim)
        new_values = rows.expand(layer.num_kv_heads, -1, layer.value_dim) + 0.5
        keys, values = cache.write(number, new_keys, new_values)
        found = keys[0, :, :1] - number
        assert torch.equal(keys, (found + number).expand(layer.num_kv_heads, -1, layer.key_dim))
        assert torch.equal(values, (found + number + 0.5).expand(layer.num_kv_heads, -1, layer.value_dim))
    return [float(name) for name in found[:, 0]]


@given(steps=st.lists(st.tuples(token_trees(), st.integers(0, 6)), max_size=6))
def test_the_chain_and_the_path_are_kept_in_order(steps: list[tuple[TokenTree, int]]) -> None:
    cache = SequenceCache(_LAYERS, torch.float32, _CPU, capacity=4)
    kept: list[float] = []
    for number, (tree, pick) in enumerate(steps):
        names = [100.0 * number + row for row in range(tree.num_rows)]
        node = None if pick >= len(tree.branch_ids) else pick

        seen = _write(cache, names)
        cache.keep(tree, node)

        assert seen == kept + names
        kept += [*names[: len(tree.chain_ids)], *(names[len(tree.chain_ids) + at] for at in tree.find_path(node))]
        assert cache.num_tokens == len(kept)


@given(tree=token_trees(), num_kept=st.integers(0, 3))
def test_a_segment_comes_after_the_kept_tokens(tree: TokenTree, num_kept: int) -> None:
    cache = SequenceCache(_LAYERS, torch.float32, _CPU)
    cache.num_tokens = num_kept

    segment = cache.build_segment(tree, 7)

    num_keys = num_kept + tree.num_rows
    assert (segment.first_row, segment.num_rows) == (7, tree.num_rows)
    assert segment.depths.tolist() == [num_kept + position for position in find_row_positions(tree)]
    assert segment.mask is None or segment.mask.shape == (tree.num_rows, num_keys)
    assert cache.find_key_positions(segment.depths).shape == (num_keys,)


@torch.inference_mode()
def test_a_row_store_gives_the_keys_and_positions_of_the_masks_columns() -> None:
    store = RowStore([LayerShape(1, 1, 1)], torch.float32, _CPU, capacity=4)
    store.build_segment([0, 2], [0, 1], torch.ones(2, 3, dtype=torch.bool))
    store.write(0, torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[5.0], [6.0]]]))
    store.grow(6)
    segment = store.build_segment([1], [1], torch.tensor([[True, True, False]]))

    keys, values = store.write(0, torch.tensor([[[3.0]]]), torch.tensor([[[7.0]]]))

    assert keys.flatten().tolist() == [1.0, 3.0, 2.0]
    assert values.flatten().tolist() == [5.0, 7.0, 6.0]
    assert store.find_key_positions(segment.depths).tolist() == [0, 1, 1]


def test_a_failed_allocation_is_an_overloaded_error_and_leaves_the_cache_unchanged() -> None:
    cache = SequenceCache(_LAYERS, torch.float32, _CPU)
    _write(cache, [1.0, 2.0])
    cache.keep(TokenTree((0, 0)), None)

    with pytest.raises(OverloadedError, match="keys and values of"):
        cache.reserve(1 << 48)

    assert _write(cache, [3.0]) == [1.0, 2.0, 3.0]


def test_a_cache_that_cannot_be_forked_is_an_overloaded_error() -> None:
    cache = SequenceCache(_LAYERS, torch.float32, _CPU)

    with pytest.raises(OverloadedError, match="keys and values of"):
        cache.fork(capacity=1 << 48)


@pytest.mark.parametrize(("num_tokens", "capacity", "expected"), [(1, 3, 3), (None, 1, 2), (2, 0, 2), (1, 9, 9)])
def test_a_copy_has_the_room_that_is_asked_for(num_tokens: int | None, capacity: int, expected: int) -> None:
    cache = SequenceCache(_LAYERS, torch.float32, _CPU, capacity=64)
    _write(cache, [1.0, 2.0])
    cache.keep(TokenTree((0, 0)), None)

    assert cache.fork(num_tokens, capacity).capacity == expected


def test_a_row_store_that_cannot_grow_raises_overloaded_and_stays_unchanged() -> None:
    store = RowStore(_LAYERS, torch.float32, _CPU, capacity=4)

    with pytest.raises(OverloadedError, match="keys and values of"):
        store.grow(1 << 48)

    assert store.capacity == 4


@torch.inference_mode()
def test_rows_of_a_row_store_that_were_never_written_are_zeros() -> None:
    """Attention multiplies masked values by 0, and a NaN stays a NaN."""
    store = RowStore([LayerShape(1, 1, 1)], torch.float32, _CPU, capacity=4)
    for states in store._planes.find(0):
        states.fill_(torch.nan)
    store._planes.zero_rows(0)
    memory = torch.full((1 << 20,), torch.nan)  # freed, so that the larger store may get it
    del memory

    store.grow(1 << 19)

    assert not any(states.any() for states in store._planes.find(0))
