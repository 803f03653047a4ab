import gc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.pytorch.pool import LayerShape, SequenceCache, StoredToken, TokenPool, find_row_positions
from tests.support.toys import token_trees


def _build_pool(capacity: int = 4) -> TokenPool:
    return TokenPool([LayerShape(1, 1, 1)], torch.float32, torch.device("cpu"), capacity)


@torch.inference_mode()
def _write(cache: SequenceCache, tree: TokenTree, names: list[float], stored: tuple[StoredToken, ...] = ()) -> None:
    """Writes the tree's new rows, with a name each, as a forward pass does."""
    cache.reserve(tree.num_rows)
    segment = cache.build_segment(tree, stored)
    assert segment.planes is not None
    segment.planes.find(0)[0][0, segment.new_slots, 0] = torch.tensor(names)


def _read(cache: SequenceCache) -> list[float]:
    """The names of the kept tokens."""
    names: list[float] = cache._pool.planes.find(0)[0][0, cache._kept, 0].tolist()
    return names


@given(steps=st.lists(st.tuples(token_trees(), st.integers(0, 6)), max_size=6))
def test_the_chain_and_the_path_are_kept_in_order(steps: list[tuple[TokenTree, int]]) -> None:
    cache = SequenceCache(_build_pool(), 0)
    kept: list[float] = []
    for number, (tree, pick) in enumerate(steps):
        names = [100.0 * number + row for row in range(tree.num_rows)]
        node = None if pick >= len(tree.branch_ids) else pick

        _write(cache, tree, names)
        cache.keep(tree, node)

        kept += [*names[: len(tree.chain_ids)], *(names[len(tree.chain_ids) + at] for at in tree.find_path(node))]
        assert _read(cache) == kept
        assert cache.num_tokens == len(kept)


_ACTIONS = ["step", "fork", "cut", "copy", "append", "drop", "forget"]


@given(data=st.data(), actions=st.lists(st.sampled_from(_ACTIONS), max_size=25))
def test_sequences_that_share_slots_never_change_each_other(data: st.DataObject, actions: list[str]) -> None:
    """The model of each sequence is the list of its names; of a stored token, its name."""
    pool = _build_pool()
    caches: list[tuple[SequenceCache, list[float]]] = [(SequenceCache(pool, 0), [])]
    stored: list[tuple[StoredToken, float]] = []
    for number, action in enumerate(actions):
        cache, names = caches[data.draw(st.integers(0, len(caches) - 1))]
        if action == "step":
            tree = data.draw(token_trees())
            new = [100.0 * (number + 1) + row for row in range(tree.num_rows)]
            _write(cache, tree, new)
            copies = cache.copy_branches(tree)
            stored += zip(copies, new[len(tree.chain_ids) :], strict=True)
            node = data.draw(st.sampled_from([None, *range(len(tree.branch_ids))]))
            cache.keep(tree, node)
            names += [*new[: len(tree.chain_ids)], *(new[len(tree.chain_ids) + at] for at in tree.find_path(node))]
        elif action == "fork":
            count = data.draw(st.integers(0, len(names)))
            caches.append((cache.fork(count), names[:count]))
        elif action == "cut":
            count = data.draw(st.integers(0, len(names)))
            cache.cut(count)
            del names[count:]
        elif action == "copy":
            count = data.draw(st.integers(0, len(names)))
            stored += zip(cache.copy_tokens(count), names[count:], strict=True)
        elif action == "append":
            chosen = [pair for pair in stored if pair[1] not in names and data.draw(st.booleans())]
            chosen = list({name: (token, name) for token, name in chosen}.values())
            cache.append([token for token, _ in chosen])
            names += [name for _, name in chosen]
        elif action == "drop" and len(caches) > 1:
            caches.remove((cache, names))
        elif action == "forget":
            stored = stored[1:]
        del cache
        for own, expected in caches:
            assert _read(own) == expected
        for token, name in stored:
            assert pool.planes.find(0)[0][0, token.slot, 0] == name

    caches.clear()
    stored.clear()
    tree, copies = None, None  # type: ignore[assignment]
    own = token = chosen = None  # type: ignore[assignment]
    gc.collect()
    assert pool.num_free == pool.planes.capacity


@given(tree=token_trees(), num_kept=st.integers(0, 3))
def test_a_segment_comes_after_the_kept_tokens(tree: TokenTree, num_kept: int) -> None:
    cache, context = SequenceCache(_build_pool(), 0), TokenTree((0,) * num_kept)
    if num_kept:
        _write(cache, context, [0.0] * num_kept)
        cache.keep(context, None)
    cache.reserve(tree.num_rows)

    segment = cache.build_segment(tree)

    positions = [num_kept + position for position in find_row_positions(tree)]
    assert segment.positions.tolist() == positions
    assert segment.key_positions.tolist() == [*range(num_kept), *positions]
    assert segment.key_slots.tolist() == [*cache._kept.tolist(), *segment.new_slots.tolist()]
    assert segment.visible is None or segment.num_open == num_kept


def test_stored_branches_are_seen_and_not_written() -> None:
    pool = _build_pool()
    source, cache = SequenceCache(pool, 0), SequenceCache(pool, 0)
    tree = TokenTree((1,), (2, 3), (None, 0))
    _write(source, tree, [1.0, 2.0, 3.0])
    stored = tuple(source.copy_branches(tree))
    further = TokenTree((), (2, 3, 4), (None, 0, 1))
    cache.reserve(further.num_rows)

    segment = cache.build_segment(further, stored)

    assert segment.key_slots.tolist() == [*(row.slot for row in stored), *segment.new_slots.tolist()]
    assert segment.num_rows == len(segment.new_slots) == 1
    cache.keep(further, 1)
    assert _read(cache) == [2.0, 3.0]


def test_the_room_of_a_cache_is_taken_at_once_and_free_again_without_it() -> None:
    pool = _build_pool(10)
    cache = SequenceCache(pool, 7)

    assert (cache.capacity, cache.num_tokens, pool.num_free) == (7, 0, 3)
    with pytest.raises(OverloadedError, match="keys and values of"):
        SequenceCache(pool, 1 << 48)
    del cache
    assert pool.num_free == 10


def test_branches_that_are_discarded_leave_their_room_to_the_next_tokens() -> None:
    pool = _build_pool(9)
    cache, tree = SequenceCache(pool, 9), TokenTree((1,), (2, 3, 4), (None, None, None))
    _write(cache, tree, [1.0, 2.0, 3.0, 4.0])
    cache.keep(tree, 0)

    assert (cache.num_tokens, cache.capacity, pool.num_free) == (2, 9, 0)


def test_a_copy_takes_no_slots() -> None:
    pool = _build_pool()
    cache, tree = SequenceCache(pool, 0), TokenTree((1, 2, 3))
    _write(cache, tree, [1.0, 2.0, 3.0])
    cache.keep(tree, None)

    copies = [cache.fork() for _ in range(9)]

    assert pool.num_free == 1
    assert all(_read(copy) == [1.0, 2.0, 3.0] for copy in copies)


def test_a_cache_that_gets_no_slots_is_unchanged() -> None:
    cache, tree = SequenceCache(_build_pool(), 0), TokenTree((1, 2))
    _write(cache, tree, [1.0, 2.0])
    cache.keep(tree, None)

    with pytest.raises(OverloadedError, match="keys and values of"):
        cache.reserve(1 << 48)

    _write(cache, TokenTree((3,)), [3.0])
    cache.keep(TokenTree((3,)), None)
    assert _read(cache) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(("num_tokens", "capacity", "expected"), [(1, 3, 3), (None, 1, 2), (2, 0, 2), (1, 9, 9)])
def test_a_copy_has_the_room_that_is_asked_for(num_tokens: int | None, capacity: int, expected: int) -> None:
    cache, tree = SequenceCache(_build_pool(), 64), TokenTree((1, 2))
    _write(cache, tree, [1.0, 2.0])
    cache.keep(tree, None)

    assert cache.capacity == 64
    assert cache.fork(num_tokens, capacity).capacity == expected


def test_the_memory_of_a_cache_is_that_of_its_slots() -> None:
    cache, tree = SequenceCache(_build_pool(), 0), TokenTree((1, 2), (3, 4, 5), (None, None, None))
    _write(cache, tree, [1.0, 2.0, 3.0, 4.0, 5.0])
    cache.keep(tree, 2)

    assert cache.nbytes == 5 * 2 * 4
    assert cache.fork().nbytes == 3 * 2 * 4
