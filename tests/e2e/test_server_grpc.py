"""The completion model over gRPC, in a real tritonserver and in one process without Triton."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from inference.client.client import Client
from inference.errors import InvalidRequestError, OverloadedError, ServerError
from inference.protocol import completion
from inference.protocol.completion import CompletionRequest, Extent
from tests.support.servers import RunningServer

pytestmark = pytest.mark.e2e


async def _complete(server: RunningServer, request: CompletionRequest) -> list[completion.CompletionChunk]:
    async with Client(server.url, idle_timeout_s=30) as client:
        return [chunk async for chunk in client.stream(request)]


def _make_slow(name: str) -> CompletionRequest:
    """Returns a request that takes ten seconds. The scripted server records its cancellation under this name."""
    return CompletionRequest("slow", suffix=name, max_tokens=1000, extent=Extent.BLOCK)


async def test_only_the_last_chunk_is_last(any_server: RunningServer) -> None:
    chunks = await _complete(any_server, CompletionRequest("def main(", max_tokens=8))
    assert len(chunks) > 1
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_cancelling_the_task_cancels_on_the_server(any_scripted_server: RunningServer) -> None:
    async with Client(any_scripted_server.url) as client:
        chunks = client.stream(_make_slow("task"))
        await anext(chunks)
        task = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await _wait_until(lambda: "cancelled task" in any_scripted_server.events)


async def test_each_cancel_is_counted(scripted_server: RunningServer) -> None:
    counted = partial(scripted_server.read_metric, "midtoken_requests_total", 'outcome="cancelled"')
    before = counted()
    async with Client(scripted_server.url) as client:
        for _ in range(3):
            async for _ in client.stream(_make_slow("counted")):
                break
        await _wait_until(lambda: counted() >= before + 3)


async def _wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("script", "kind", "text"),
    [
        ("overload", OverloadedError, "64 requests are waiting already"),
        ("refuse", InvalidRequestError, "prefix is refused by the script"),
        ("break", ServerError, "the engine broke off"),
        ("raise", ServerError, "the server failed on this request (RuntimeError); its log says where"),
    ],
)
async def test_each_failure_ends_the_stream_with_its_own_error_type(
    any_scripted_server: RunningServer, script: str, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as caught:
        await _complete(any_scripted_server, CompletionRequest(script))
    assert (type(caught.value), str(caught.value)) == (kind, text)
