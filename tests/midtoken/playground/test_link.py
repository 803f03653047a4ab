import asyncio

import pytest

from inference.errors import LaunchError
from midtoken.playground.link import Link
from tests.support.playground_fakes import FedServer


class _Servers:
    """Connects to a new server each time, once `is_up` is set."""

    def __init__(self) -> None:
        self.servers: list[FedServer] = []
        self.num_attempts = 0
        self.is_up = asyncio.Event()
        self.error: Exception | None = None

    async def connect(self) -> FedServer:
        self.num_attempts += 1
        await self.is_up.wait()
        if self.error is not None:
            raise self.error
        self.servers.append(FedServer())
        return self.servers[-1]


async def test_all_that_ask_share_one_connection() -> None:
    servers = _Servers()
    link = Link(servers.connect)
    asked = [asyncio.create_task(link.get()) for _ in range(3)]
    servers.is_up.set()
    assert set(await asyncio.gather(*asked)) == {servers.servers[0]}
    assert await link.get() is servers.servers[0]
    await link.close()


async def test_a_question_that_is_superseded_does_not_end_the_attempt_to_connect() -> None:
    servers = _Servers()
    link = Link(servers.connect)
    asked = asyncio.create_task(link.get())
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    servers.is_up.set()
    assert await link.get() is servers.servers[0]
    assert servers.num_attempts == 1
    await link.close()


async def test_a_failure_is_told_to_all_without_a_new_attempt() -> None:
    servers = _Servers()
    servers.is_up.set()
    servers.error = LaunchError("no tritonserver")
    link = Link(servers.connect, retry_s=1000)
    for _ in range(3):
        with pytest.raises(LaunchError, match="no tritonserver"):
            await link.get()
    assert servers.num_attempts == 1
    await link.close()


async def test_after_a_failure_it_connects_again() -> None:
    servers = _Servers()
    servers.is_up.set()
    servers.error = LaunchError("not yet")
    link = Link(servers.connect, retry_s=0)
    with pytest.raises(LaunchError):
        await link.get()
    servers.error = None
    assert await link.get() is servers.servers[0]
    await link.close()


async def test_a_lost_connection_is_closed_and_replaced() -> None:
    servers = _Servers()
    servers.is_up.set()
    link = Link(servers.connect)
    first = await link.get()
    await link.drop(first)
    second = await link.get()
    assert servers.servers == [first, second]
    await link.drop(first)  # another question notices the same loss
    assert await link.get() is second
    assert [server.is_closed for server in servers.servers] == [True, False]
    await link.close()


async def test_closing_ends_an_attempt_to_connect() -> None:
    servers = _Servers()
    link = Link(servers.connect)
    asked = asyncio.create_task(link.get())
    await asyncio.sleep(0)
    await link.close()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_closing_closes_the_connection() -> None:
    servers = _Servers()
    servers.is_up.set()
    link = Link(servers.connect)
    await link.get()
    await link.close()
    assert servers.servers[0].is_closed


async def test_closing_what_never_connected_does_nothing() -> None:
    await Link(_Servers().connect).close()
