"""The shared connection to the completion server: when it is made, and what the user is told."""

import asyncio
import errno
import os
from typing import Any

import pytest

from inference.errors import LaunchError, ModelError
from lsp_server.backend import Connector
from lsp_server.settings import Settings
from tests.support.lsp_fakes import FedBackend, Said

_STARTING = "starting the completion server; the first start takes about ten seconds"


class Server:
    """A server whose `connect` returns once the test sets `is_up`."""

    def __init__(self) -> None:
        self.backend = FedBackend()
        self.status = Said()
        self.num_starts = 0
        self.is_up = asyncio.Event()
        self.error: BaseException | None = None

    def build_connector(self, is_up: bool = True, **times_s: Any) -> Connector:
        if is_up:
            self.is_up.set()
        return Connector(self.connect, self.status, **times_s)

    async def connect(self, *_: object) -> FedBackend:
        self.num_starts += 1
        await self.is_up.wait()
        if self.error is not None:
            raise self.error.with_traceback(None)  # as if it were raised for the first time
        return self.backend


@pytest.fixture
def server() -> Server:
    return Server()


async def test_requests_do_not_wait_for_a_start_and_the_user_is_told(server: Server) -> None:
    connector = server.build_connector(is_up=False, grace_s=0.01)
    assert [await connector.get(), await connector.get()] == [None, None]
    assert server.status.begun == [_STARTING]
    server.is_up.set()
    assert await connector.get() is server.backend
    assert server.num_starts == 1
    assert server.status.ended[-1].startswith("completion server ready after")


_FAILED = "cannot connect to the completion server: "


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModelError("it is gated"), "it is gated. Correct that, then restart the language server"),
        (LaunchError("install it"), "install it"),
        (OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)), f"{_FAILED}No locks available"),
        (PermissionError(errno.EACCES, "Permission denied", "/lock"), f"{_FAILED}Permission denied (/lock)"),
        *((kind("secret"), f"unexpected {kind.__name__} at ") for kind in (KeyError, OSError, TimeoutError)),
        (asyncio.CancelledError(), None),
    ],
)
async def test_an_error_while_connecting_is_told_once_and_only_what_a_hub_refuses_is_not_tried_again(
    server: Server, error: BaseException, told: str | None
) -> None:
    server.error = error
    connector = server.build_connector(is_up=False, grace_s=0.01, retry_s=0)
    await connector.get()
    while not server.status.begun:  # the notice and the end of the wait are due at the same time
        await asyncio.sleep(0)
    server.is_up.set()
    assert [await connector.get() for _ in range(5)] == [None] * 5
    ended = "completion server not started" if told else "start of the completion server cancelled"
    num_tries = 1 if isinstance(error, ModelError) else 5
    assert server.status.ended == [ended] * num_tries
    assert [text[: len(told or "")] for text in server.status.shown] == ([told] if told else [])
    assert "secret" not in "".join(server.status.shown)
    server.error = None
    if num_tries == 1:
        connector.restart(Settings())
    assert await connector.get() is server.backend


async def test_a_dropped_backend_is_closed_and_replaced_once(server: Server) -> None:
    connector = server.build_connector(retry_s=0)
    first = await connector.get()
    assert isinstance(first, FedBackend)
    server.backend = FedBackend()
    connector.drop(first)
    second = await connector.get()
    connector.drop(first)
    assert await connector.get() is second is server.backend
    assert (server.num_starts, first.is_closed, server.backend.is_closed) == (2, True, False)


async def test_closing_cancels_a_running_start(server: Server) -> None:
    connector = server.build_connector(is_up=False, grace_s=0.01)
    await connector.get()
    await connector.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert server.status.ended == ["start of the completion server cancelled"]


async def test_closing_does_not_wait_for_ever(server: Server) -> None:
    class Endless(FedBackend):
        async def close(self) -> None:
            await asyncio.Event().wait()

    server.backend = Endless()
    connector = server.build_connector(close_s=0.01)
    await connector.get()
    await asyncio.wait_for(connector.close(), 5)
    assert len(asyncio.all_tasks()) == 2  # the test, and the task that closes
