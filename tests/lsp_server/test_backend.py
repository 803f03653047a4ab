"""The shared connection to the completion server: when it is made, and what the user is told."""

import asyncio
import errno
import os

import pytest

from inference.errors import LaunchError
from lsp_server.backend import BackendStarter, OnDownload
from lsp_server.status import Status
from tests.support.lsp_fakes import FedBackend, RecordingWindow

_STARTING = "begin starting the completion server; the first start takes some ten seconds"


class Server:
    """A server whose `connect` returns once the test sets `is_up`."""

    def __init__(self) -> None:
        self.backend = FedBackend()
        self.window = RecordingWindow()
        self.num_starts = 0
        self.is_up = asyncio.Event()
        self.error: BaseException | None = None

    def build_starter(self, is_up: bool = True, **times_s: float) -> BackendStarter:
        if is_up:
            self.is_up.set()
        return BackendStarter(self.connect, Status(self.window), **times_s)

    async def connect(self, _: OnDownload) -> FedBackend:
        self.num_starts += 1
        await self.is_up.wait()
        if self.error is not None:
            raise self.error
        return self.backend


@pytest.fixture
def server() -> Server:
    return Server()


async def test_requests_do_not_wait_for_a_start_and_the_user_is_told(server: Server) -> None:
    starter = server.build_starter(is_up=False, grace_s=0.01)
    assert await starter.get() is None
    assert await starter.get() is None
    assert server.window.progress == [_STARTING]
    server.is_up.set()
    assert await starter.get() is server.backend
    assert server.num_starts == 1
    assert server.window.progress[1].startswith("end completion server ready after")


async def test_a_running_server_answers_the_first_request_without_a_notice(server: Server) -> None:
    assert await server.build_starter(grace_s=60).get() is server.backend
    assert not any(text.startswith("begin") for text in server.window.progress)


async def test_a_failed_start_is_reported_once_and_not_retried_at_every_request(server: Server) -> None:
    server.error = LaunchError("no tritonserver found; install it")
    starter = server.build_starter(retry_s=60)
    for _ in range(5):
        assert await starter.get() is None
    assert server.window.errors == ["midtoken: no tritonserver found; install it"]
    assert server.num_starts == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (LaunchError("install it"), "midtoken: install it"),
        (
            OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)),
            "midtoken: cannot connect to the completion server: No locks available",
        ),
        (
            PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/state/start.lock"),
            "midtoken: cannot connect to the completion server: Permission denied (/state/start.lock)",
        ),
    ],
)
async def test_any_error_while_connecting_ends_the_notice_and_is_reported_once(
    server: Server, error: Exception, message: str
) -> None:
    server.error = error
    starter = server.build_starter(is_up=False, grace_s=0.01, retry_s=0)
    await starter.get()
    while not server.window.progress:  # the notice and the end of the wait are due at the same time
        await asyncio.sleep(0)
    server.is_up.set()
    for _ in range(5):
        assert await starter.get() is None
    assert server.window.progress[:2] == [_STARTING, "end completion server not started"]
    assert server.window.errors == [message]
    server.error = None
    assert await starter.get() is server.backend


@pytest.mark.parametrize("error", [KeyError("secret"), OSError("secret"), TimeoutError()])
async def test_a_defect_while_connecting_is_reported_without_its_text(server: Server, error: Exception) -> None:
    server.error = error
    starter = server.build_starter(retry_s=0)
    assert await starter.get() is None
    assert server.window.errors[0].startswith(f"midtoken: unexpected {type(error).__name__} at ")
    assert "secret" not in server.window.errors[0]


async def test_a_cancelled_start_ends_the_notice_and_is_retried(server: Server) -> None:
    server.error = asyncio.CancelledError()
    starter = server.build_starter(is_up=False, grace_s=0.01, retry_s=0)
    await starter.get()
    server.is_up.set()
    assert await starter.get() is None
    assert server.window.progress == [_STARTING, "end start of the completion server cancelled"]
    assert server.window.errors == []
    server.error = None
    assert await starter.get() is server.backend


async def test_a_dropped_backend_is_closed_and_replaced_once(server: Server) -> None:
    starter = server.build_starter(retry_s=0)
    first = await starter.get()
    assert isinstance(first, FedBackend)
    server.backend = FedBackend()
    starter.drop(first)
    second = await starter.get()
    starter.drop(first)
    assert await starter.get() is second is server.backend
    assert (server.num_starts, first.is_closed, server.backend.is_closed) == (2, True, False)


async def test_an_error_while_closing_a_lost_backend_is_reported_without_its_text(server: Server) -> None:
    server.backend.close_error = ValueError("secret")
    starter = server.build_starter()
    backend = await starter.get()
    assert backend is not None
    starter.drop(backend)
    await starter.close()
    assert len(server.window.errors) == 1
    assert server.window.errors[0].startswith("midtoken: unexpected ValueError at ")
    assert "secret" not in server.window.errors[0]


async def test_closing_cancels_a_running_start(server: Server) -> None:
    starter = server.build_starter(is_up=False, grace_s=0.01)
    await starter.get()
    await starter.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert server.window.progress == [_STARTING, "end start of the completion server cancelled"]


async def test_closing_does_not_wait_for_ever(server: Server) -> None:
    class Endless(FedBackend):
        async def close(self) -> None:
            await asyncio.Event().wait()

    server.backend = Endless()
    starter = server.build_starter(close_s=0.01)
    await starter.get()
    await asyncio.wait_for(starter.close(), 5)
    assert len(asyncio.all_tasks()) == 2  # the test, and the task that closes


async def test_closing_waits_until_the_backend_is_closed(server: Server) -> None:
    starter = server.build_starter()
    await starter.get()
    await starter.close()
    assert server.backend.is_closed
    assert asyncio.all_tasks() == {asyncio.current_task()}
