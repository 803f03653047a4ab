import asyncio

import pytest

from inference.serving.calls import CallOpener


class _Call:
    """A call that the server ends when the test says so."""

    def __init__(self) -> None:
        self.is_done = False
        self.cancelled = asyncio.Event()

    def done(self) -> bool:
        return self.is_done

    def cancel(self) -> None:
        self.is_done = True
        self.cancelled.set()


@pytest.fixture
def opened() -> list[_Call]:
    """The calls that were opened."""
    return []


def _make_opener(opened: list[_Call], kept_s: float = 60.0) -> CallOpener:
    def open_call() -> _Call:
        opened.append(_Call())
        return opened[-1]

    return CallOpener(open_call, kept_s)


@pytest.fixture
def opener(opened: list[_Call]) -> CallOpener:
    return _make_opener(opened)


async def test_the_next_call_is_open_before_it_is_taken(opener: CallOpener, opened: list[_Call]) -> None:
    opener.open_next()
    opener.open_next()
    assert len(opened) == 1
    assert opener.take() is opened[0]
    assert opener.take() is not opened[0]
    assert len(opened) == 2
    assert not opened[0].is_done


async def test_a_call_that_the_server_has_ended_is_not_taken(opener: CallOpener, opened: list[_Call]) -> None:
    opener.open_next()
    opened[0].is_done = True
    assert opener.take() is not opened[0]
    opener.open_next()
    assert len(opened) == 3


async def test_a_call_that_is_not_needed_is_closed(opened: list[_Call]) -> None:
    opener = _make_opener(opened, kept_s=0.0)
    opener.open_next()
    await opened[0].cancelled.wait()
    assert opener.take() is not opened[0]


async def test_a_call_that_was_taken_is_not_closed(opener: CallOpener) -> None:
    opener.open_next()
    call = opener.take()
    opener.close()
    assert not call.is_done


async def test_close_closes_the_call_that_was_not_taken(opener: CallOpener, opened: list[_Call]) -> None:
    opener.open_next()
    opener.close()
    assert opened[0].is_done
