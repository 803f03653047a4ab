import asyncio

import pytest

from inference.serving.calls import CallOpener

# A future stands for a call: it is done when it has a result, as a call when the server has ended it, or is cancelled.
_Calls = list["asyncio.Future[None]"]


@pytest.fixture
def opened() -> _Calls:
    """The calls that were opened."""
    return []


@pytest.fixture
def opener(opened: _Calls, request: pytest.FixtureRequest) -> CallOpener:
    def open_call() -> "asyncio.Future[None]":
        opened.append(asyncio.get_running_loop().create_future())
        return opened[-1]

    return CallOpener(open_call, getattr(request, "param", 60.0))


async def test_the_next_call_is_open_before_it_is_taken_once_and_then_not_closed(
    opener: CallOpener, opened: _Calls
) -> None:
    opener.open_next()
    opener.open_next()
    assert len(opened) == 1
    assert opener.take() is opened[0]
    opener.close()
    assert opener.take() is not opened[0]
    assert (len(opened), opened[0].done()) == (2, False)


async def test_a_call_that_the_server_has_ended_is_not_taken(opener: CallOpener, opened: _Calls) -> None:
    opener.open_next()
    opened[0].set_result(None)
    assert opener.take() is not opened[0]
    opener.open_next()
    assert len(opened) == 3
