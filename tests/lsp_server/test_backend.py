"""The one connection to the model's server: when it is made, and what is told meanwhile."""

import asyncio

from inference.errors import LaunchError
from lsp_server.backend import BackendStarter
from lsp_server.status import Status
from tests.support.lsp_fakes import FedBackend, RecordingWindow


class Server:
    """Something to connect to, at the test's word."""

    def __init__(self) -> None:
        self.backend = FedBackend()
        self.num_starts = 0
        self.is_up = asyncio.Event()
        self.error: LaunchError | None = None

    async def connect(self) -> FedBackend:
        self.num_starts += 1
        await self.is_up.wait()
        if self.error is not None:
            raise self.error
        return self.backend


async def test_requests_are_not_held_up_by_a_start_and_the_person_is_told() -> None:
    server, window = Server(), RecordingWindow()
    starter = BackendStarter(server.connect, Status(window), grace_s=0.01)
    assert await starter.get() is None
    assert await starter.get() is None
    assert window.progress == ["begin starting the completion server; the first start takes some ten seconds"]
    server.is_up.set()
    assert await starter.get() is server.backend
    assert server.num_starts == 1
    assert window.progress[1].startswith("end completion server ready after")


async def test_a_server_that_runs_already_answers_the_first_request_and_nothing_is_told() -> None:
    server, window = Server(), RecordingWindow()
    server.is_up.set()
    assert await BackendStarter(server.connect, Status(window), grace_s=60).get() is server.backend
    assert not any(text.startswith("begin") for text in window.progress)


async def test_a_failed_start_is_told_once_and_not_tried_at_every_request() -> None:
    server, window = Server(), RecordingWindow()
    server.error = LaunchError("no tritonserver found; install it")
    server.is_up.set()
    starter = BackendStarter(server.connect, Status(window), retry_s=60)
    for _ in range(5):
        assert await starter.get() is None
    assert window.errors == ["midtoken: no tritonserver found; install it"]
    assert server.num_starts == 1


async def test_a_failed_start_is_tried_again_later() -> None:
    server, window = Server(), RecordingWindow()
    server.error = LaunchError("not yet")
    server.is_up.set()
    starter = BackendStarter(server.connect, Status(window), retry_s=0)
    assert await starter.get() is None
    server.error = None
    assert await starter.get() is server.backend


async def test_a_dropped_backend_is_replaced() -> None:
    server = Server()
    server.is_up.set()
    starter = BackendStarter(server.connect, Status(RecordingWindow()), retry_s=0)
    first = await starter.get()
    assert first is not None
    server.backend = FedBackend()
    await starter.drop(first)
    assert await starter.get() is server.backend
    assert server.num_starts == 2


async def test_closing_ends_a_start_under_way() -> None:
    server = Server()
    starter = BackendStarter(server.connect, Status(RecordingWindow()), grace_s=0)
    await starter.get()
    await starter.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
