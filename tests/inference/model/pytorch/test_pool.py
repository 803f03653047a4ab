import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from inference.healing.token_tree import TokenTree
from inference.model.pytorch.pool import (
    LayerShape,
    Slots,
    TokenPool,
    TorchSequenceCache,
)
from tests.support.pools import count_free

_CPU = torch.device("cpu")
_LAYERS = [LayerShape(2, 4, 3), LayerShape(2, 3, 3), LayerShape(1, 4, 4)]


def _build_pool(capacity: int = 4) -> TokenPool:
    return TokenPool([LayerShape(1, 1, 1)], torch.float32, _CPU, capacity)


@torch.inference_mode()
def _name(pool: TokenPool, slots: Slots, names: Sequence[float]) -> None:
    """Writes a name for each slot, in place of keys."""
    pool.find(0)[0][0, slots, 0] = torch.tensor(names)


def _read(pool: TokenPool, slots: Slots) -> list[float]:
    """The names of slots."""
    names: list[float] = pool.find(0)[0][0, slots, 0].tolist()
    return names


_ACTIONS = ["allocate", "allocate", "hold", "release", "release"]


@given(actions=st.lists(st.tuples(st.sampled_from(_ACTIONS), st.sampled_from([0, 1, 2, 5, 700, 3000])), max_size=30))
def test_a_slot_is_given_away_only_while_nobody_holds_it_and_keeps_its_keys(actions: list[tuple[str, int]]) -> None:
    """The pool grows and shrinks on the way."""
    pool = _build_pool()
    holds: list[tuple[Slots, list[float]]] = []
    for name, (action, number) in enumerate(actions):
        if action == "allocate":
            held = {slot for slots, _ in holds for slot in slots.tolist()}
            slots = pool.allocate(number)
            assert held.isdisjoint(slots.tolist())
            assert len(set(slots.tolist())) == number
            holds.append((slots, [float(name)] * number))
            _name(pool, *holds[-1])
        elif holds and action == "hold":
            pool.hold(holds[number % len(holds)][0])
            holds.append(holds[number % len(holds)])
        elif holds:
            pool.release(holds.pop(number % len(holds))[0])
        assert all(_read(pool, slots) == names for slots, names in holds)
    held = {slot for slots, _ in holds for slot in slots.tolist()}
    assert count_free(pool) == pool.capacity - len(held)


def test_keys_and_values_of_each_layer_have_a_place_and_a_shape_of_their_own_at_any_size() -> None:
    pool = TokenPool(_LAYERS, torch.float16, _CPU, 5)
    planes = [plane for layer in range(len(_LAYERS)) for plane in pool.find(layer)]
    for number, plane in enumerate(planes):
        plane.fill_(number)
    assert pool.slot_nbytes == 2 * (2 * 7 + 2 * 6 + 8)

    for capacity in (9, 3):
        pool.resize(capacity)
        for layer, shape in enumerate(_LAYERS):
            for at, dim in enumerate((shape.key_dim, shape.value_dim)):
                plane = pool.find(layer)[at]
                assert plane.shape == (shape.num_kv_heads, capacity, dim)
                assert (plane[:, :3] == 2 * layer + at).all()


class _Memory(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not annotate it
    """Counts the bytes of the tensors that are made inside this context, for as long as they are there."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_bytes = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if "empty" in func.name():
            self._add(found.nbytes)
            weakref.finalize(found, self._add, -found.nbytes)
        return found

    def _add(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes
        self.most = max(self.most, self.num_bytes)


def test_a_pool_that_grows_has_one_plane_twice_and_one_that_is_free_again_shrinks() -> None:
    with _Memory() as memory:
        pool = TokenPool([LayerShape(2, 8, 8)] * 10, torch.float32, _CPU, 1000)
        slots = pool.allocate(1000)
        more = pool.allocate(1)
        assert pool.capacity == 2000
        assert memory.num_bytes == 2000 * pool.slot_nbytes
        assert memory.most < 2100 * pool.slot_nbytes  # old and new together would be 3000
        pool.release(slots[5:])
        pool.release(more)
        pool.allocate(1)

    assert pool.capacity == 512
    assert memory.num_bytes == 512 * pool.slot_nbytes


def test_slots_that_another_thread_releases_are_free_again() -> None:
    pool = _build_pool(8)
    thread = threading.Thread(target=pool.release_later, args=(pool.allocate(5),))
    thread.start()
    thread.join()

    assert count_free(pool) == 8


def test_a_pool_that_cannot_double_grows_by_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though some planes have been doubled already."""
    pool, new_empty = TokenPool(_LAYERS, torch.float32, _CPU, 100), torch.Tensor.new_empty

    def refuse_much(plane: torch.Tensor, heads: int, capacity: int, dim: int) -> torch.Tensor:
        if capacity > 120 and dim == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return new_empty(plane, heads, capacity, dim)

    monkeypatch.setattr(torch.Tensor, "new_empty", refuse_much)

    assert len(pool.allocate(110)) == 110
    assert pool.capacity == 110
    assert {plane.shape[1] for layer in range(3) for plane in pool.find(layer)} == {110}


def test_branches_that_are_discarded_leave_their_room_to_the_next_tokens() -> None:
    pool = _build_pool(9)
    cache, tree = TorchSequenceCache(pool, 9), TokenTree((1,), (2, 3, 4), (None, None, None))
    cache.build_segment(tree)
    cache.keep(tree)
    assert (cache.num_tokens, cache.capacity, count_free(pool)) == (1, 9, 0)
