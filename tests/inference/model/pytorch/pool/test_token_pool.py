import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import OverloadedError
from inference.model.pytorch.pool import LayerShape, Slots, TokenPool


def _build(capacity: int = 4) -> TokenPool:
    return TokenPool([LayerShape(1, 1, 1)], torch.float32, torch.device("cpu"), capacity)


@given(actions=st.lists(st.tuples(st.sampled_from(["allocate", "hold", "release"]), st.integers(0, 9)), max_size=30))
def test_a_slot_is_given_away_only_while_nobody_holds_it(actions: list[tuple[str, int]]) -> None:
    pool = _build()
    holds: list[Slots] = []
    for action, number in actions:
        if action == "allocate":
            held = {slot for hold in holds for slot in hold.tolist()}
            holds.append(pool.allocate(number))
            assert held.isdisjoint(holds[-1].tolist())
            assert len(set(holds[-1].tolist())) == number
        elif holds and action == "hold":
            pool.hold(holds[number % len(holds)])
            holds.append(holds[number % len(holds)])
        elif holds:
            pool.release(holds.pop(number % len(holds)))

    held = {slot for hold in holds for slot in hold.tolist()}
    assert pool.num_free == pool.planes.capacity - len(held)


def test_new_slots_follow_each_other_and_stay_when_the_pool_grows() -> None:
    pool = _build(4)
    first = pool.allocate(3)
    pool.planes.find(0)[0][0, :3, 0] = torch.tensor([5.0, 6.0, 7.0])

    more = pool.allocate(30)

    assert first.tolist() == [0, 1, 2]
    assert len({*first.tolist(), *more.tolist()}) == 33
    assert pool.planes.find(0)[0][0, first, 0].tolist() == [5, 6, 7]


def test_slots_that_another_thread_releases_are_free_again() -> None:
    pool = _build(8)
    slots = pool.allocate(5)

    thread = threading.Thread(target=pool.release_later, args=(slots,))
    thread.start()
    thread.join()

    assert pool.num_free == 8


def test_a_pool_that_cannot_grow_raises_overloaded_and_is_unchanged() -> None:
    pool = _build(4)
    slots = pool.allocate(3)

    with pytest.raises(OverloadedError, match="keys and values of"):
        pool.allocate(1 << 48)

    assert (pool.num_free, pool.planes.capacity) == (1, 4)
    assert pool.allocate(1).tolist() == [3]
    assert slots.tolist() == [0, 1, 2]


def test_a_pool_that_cannot_double_grows_by_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, grow = _build(100), _build().planes.grow.__func__  # type: ignore[attr-defined]

    def refuse_much(capacity: int) -> None:
        if capacity > 120:
            raise OverloadedError("the device has no memory left")
        grow(pool.planes, capacity)

    monkeypatch.setattr(pool.planes, "grow", refuse_much)

    assert len(pool.allocate(110)) == 110
    assert pool.planes.capacity == 110
    assert np.all(pool._num_holders == 1)
