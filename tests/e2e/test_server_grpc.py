"""The completion model over gRPC, in a real tritonserver and in one process without Triton."""

import asyncio

import pytest

from inference.client.client import Client
from inference.errors import InvalidRequestError, OverloadedError, ServerError
from inference.protocol import completion
from inference.protocol.completion import CompletionRequest, Extent
from tests.support.servers import RunningServer, wait_until

pytestmark = pytest.mark.e2e


async def _complete(server: RunningServer, request: CompletionRequest) -> list[completion.CompletionChunk]:
    async with Client(server.url, idle_timeout_s=30) as client:
        return [chunk async for chunk in client.stream(request)]


async def test_cancelling_the_task_cancels_on_the_server(any_scripted_server: RunningServer) -> None:
    async with Client(any_scripted_server.url) as client:
        chunks = client.stream(CompletionRequest("slow", suffix="task", max_tokens=1000, extent=Extent.BLOCK))
        await anext(chunks)
        task = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.to_thread(wait_until, lambda: "cancelled task" in any_scripted_server.events)


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
