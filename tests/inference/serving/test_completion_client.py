from collections.abc import AsyncIterator, Mapping

import pytest

from inference.errors import InvalidRequestError, ServerError
from inference.protocol.arrays import Array
from inference.protocol.completion import CompletionChunk, CompletionRequest
from inference.protocol.completion_arrays import chunk_to_arrays
from inference.serving.completion_client import CompletionClient
from tests.support.fake_triton import ModelCall, answer_heartbeats, build_last_chunk, run_fake_triton


async def _answer_two_chunks(_call: ModelCall) -> AsyncIterator[Mapping[str, Array]]:
    yield chunk_to_arrays(CompletionChunk("No"))
    yield build_last_chunk("de")


async def _answer_overloaded(_call: ModelCall) -> AsyncIterator[str]:
    yield "overloaded: 64 requests are waiting already"


async def _answer_refused(_call: ModelCall) -> AsyncIterator[str]:
    yield "invalid request: max_tokens must be between 1 and 1000, not 0"


async def test_chunks_arrive_in_order() -> None:
    async with run_fake_triton(_answer_two_chunks) as server:
        client = CompletionClient(server.url)
        chunks = [chunk async for chunk in client.stream(CompletionRequest("return "))]
        await client.close()
        assert [(chunk.text, chunk.is_last) for chunk in chunks] == [("No", False), ("de", True)]


async def test_a_refused_request_raises_the_servers_reason() -> None:
    async with run_fake_triton(_answer_refused) as server:
        client = CompletionClient(server.url)
        with pytest.raises(InvalidRequestError, match="max_tokens must be between"):
            await anext(client.stream(CompletionRequest("a")))
        await client.close()


async def test_read_heartbeat_asks_the_completion_model() -> None:
    async with run_fake_triton(lambda call: answer_heartbeats(call, 20.0)) as server:
        client = CompletionClient(server.url)
        assert await client.read_heartbeat_ms() == 20.0
        await client.close()
        (call,) = server.calls
        assert call.model_name == "completion"
        assert {name: array.tolist() for name, array in call.arrays.items()} == {"prefix": [b""], "heartbeat": [True]}


async def test_heartbeat_is_answered_while_completions_wait() -> None:
    async with run_fake_triton(answer_heartbeats) as server:
        client = CompletionClient(server.url, idle_timeout_s=1.0)
        with pytest.raises(ServerError, match="sent nothing for 1 s"):
            await client.probe()
        assert await client.read_heartbeat_ms() == 0.0
        await client.close()


async def test_an_overloaded_server_passes_the_probe() -> None:
    async with run_fake_triton(_answer_overloaded) as server:
        client = CompletionClient(server.url)
        await client.probe()
        await client.close()


async def test_is_ready_returns_the_servers_own_report() -> None:
    async with run_fake_triton(answer_heartbeats) as server:
        client = CompletionClient(server.url)
        assert await client.is_ready()
        await client.close()
