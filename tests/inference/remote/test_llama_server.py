"""Which document has which slot of a llama-server."""

import asyncio
from contextlib import suppress

import pytest

from inference.remote.llama_server import Slots

_TURN_S = 4.0  # of a text that took a second to read


class _Bench:
    """Two slots, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slots = Slots(2, lambda: self.now)

    async def use(self, document: str | int, prefill_s: float = 0.0) -> int:
        async with self.slots.use(document) as slot:
            slot.prefill_s += prefill_s
            return slot.number

    async def wait(self, document: str | int) -> "asyncio.Task[int]":
        """Starts to use a slot, and lets it look for one."""
        task = asyncio.create_task(self.use(document))
        await asyncio.sleep(0.05)
        return task


@pytest.fixture
async def bench() -> _Bench:
    bench = _Bench()
    assert [await bench.use(each, prefill_s=1.0) for each in "ab"] == [0, 1]
    return bench


async def test_a_document_keeps_its_slot(bench: _Bench) -> None:
    assert [await bench.use(each) for each in "baab"] == [1, 0, 0, 1]


async def test_another_document_waits_until_the_turn_is_over_and_takes_the_slot_that_was_used_least_recently(
    bench: _Bench,
) -> None:
    waiting = await bench.wait("c")
    for bench.now in (0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2, 3.6, _TURN_S):
        assert [await bench.use("b"), await bench.use("a")] == [1, 0]
    await asyncio.sleep(0.05)
    assert not waiting.done()
    bench.now = _TURN_S + 0.1
    await bench.use("a")
    assert await waiting == 1


async def test_a_slot_that_nobody_uses_is_free_at_once(bench: _Bench) -> None:
    bench.now = 0.6
    await bench.use("b")
    assert await bench.use("c") == 0


async def test_a_slot_that_is_used_is_not_taken(bench: _Bench) -> None:
    async with bench.slots.use("a"):
        bench.now = 10.0
        assert await bench.use("c") == 1


async def test_a_document_whose_requests_supersede_each_other_keeps_its_place(bench: _Bench) -> None:
    first, later = await bench.wait("c"), await bench.wait("d")
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    again = await bench.wait("c")
    bench.now = 0.6
    async with bench.slots.use("b"):  # the other one is free
        await asyncio.sleep(0.05)
        assert await again == 0
    bench.now = 2.0
    assert await later in (0, 1)


async def test_a_request_without_a_document_takes_a_free_slot_and_holds_it_only_while_it_runs(bench: _Bench) -> None:
    bench.now = 0.6
    async with bench.slots.use(7) as first, bench.slots.use(8) as second:
        second.prefill_s = 1.0
        assert {first.number, second.number} == {0, 1}
        gone, waiting = await bench.wait(9), await bench.wait("c")
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
    assert await bench.use(8) == second.number, "it has still to ask for the rest"
    bench.now += 0.1
    assert await waiting == first.number
    assert await bench.use(7) == second.number


async def test_a_request_without_a_document_prefers_a_slot_with_its_text(bench: _Bench) -> None:
    bench.now = 0.6
    async with bench.slots.use(7, lambda slot: slot.number == 1) as slot:
        assert slot.number == 1


async def test_a_document_that_asks_no_more_is_not_waited_for(bench: _Bench) -> None:
    gone = await bench.wait("c")
    gone.cancel()
    bench.now = 2.0
    assert await bench.use("d") == 0
