"""The completion model over gRPC, in a real tritonserver and in one process without Triton."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient

from inference.errors import InvalidRequestError, OverloadedError, ServerError
from inference.protocol import completion
from inference.protocol.arrays import Array
from inference.protocol.completion import CompletionRequest, Extent, FinishReason
from inference.serving.client import Client
from inference.serving.private_files import open_folder
from tests.support.servers import RunningServer

pytestmark = pytest.mark.e2e


async def _complete(server: RunningServer, request: CompletionRequest) -> list[completion.CompletionChunk]:
    async with Client(server.url, idle_timeout_s=30) as client:
        return [chunk async for chunk in client.stream(request)]


async def _send_raw(server: RunningServer, name: str, kind: str, array: Array) -> str:
    """Sends one tensor without the checks of our own client. Returns the error text."""
    tensor = InferInput(name, list(array.shape), kind)
    tensor.set_data_from_numpy(array)

    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "completion", "inputs": [tensor]}

    folder, _, socket = server.url.removeprefix("unix:").rpartition("/")
    with open_folder(Path(folder)) if folder else nullcontext() as short:
        async with InferenceServerClient(f"unix:{short}/{socket}" if short else server.url) as client:
            answers = [answer async for answer in client.stream_infer(requests())]
    assert len(answers) == 1
    return str(answers[0][1])


def _make_slow(name: str) -> CompletionRequest:
    """Returns a request that takes ten seconds. The scripted server records its cancellation under this name."""
    return CompletionRequest("slow", suffix=name, max_tokens=1000, extent=Extent.BLOCK)


async def test_only_the_last_chunk_is_last(any_server: RunningServer) -> None:
    chunks = await _complete(any_server, CompletionRequest("def main(", max_tokens=8))
    assert len(chunks) > 1
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_chunks_arrive_while_the_completion_continues(any_scripted_server: RunningServer) -> None:
    async with Client(any_scripted_server.url) as client:
        chunks = client.stream(_make_slow("read a little"))
        assert [(await anext(chunks)).text for _ in range(3)] == ["0 ", "1 ", "2 "]
        await chunks.aclose()


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


@pytest.mark.parametrize(
    ("name", "kind", "array", "text"),
    [
        ("prefix", "BYTES", np.array([b"\xff"], np.object_), "prefix is not UTF-8: invalid start byte at byte 0"),
        ("suffix", "BYTES", np.array([b"a"], np.object_), "prefix is missing"),
        ("max_tokens", "FP32", np.array([1], np.float32), "data-type is 'FP32'"),
    ],
)
async def test_bad_input_gets_one_error(
    any_server: RunningServer, name: str, kind: str, array: Array, text: str
) -> None:
    assert text in await _send_raw(any_server, name, kind, array)


async def test_the_time_to_the_first_chunk_is_observed_for_each_completion(server: RunningServer) -> None:
    before = server.read_metric("midtoken_first_chunk_ms_count")
    for _ in range(3):
        await _complete(server, CompletionRequest("def main(", max_tokens=8))
    await _wait_until(lambda: server.read_metric("midtoken_first_chunk_ms_count") >= before + 3)


async def test_a_length_limit_ends_a_completion(embedded_real_server: RunningServer) -> None:
    *_, last = await _complete(embedded_real_server, CompletionRequest("def main(", max_tokens=3, extent=Extent.BLOCK))
    assert last.finish_reason is FinishReason.LENGTH
    assert last.stats is not None
    assert last.stats.num_tokens == 3


def test_the_model_logs_which_inference_it_runs(any_scripted_server: RunningServer) -> None:
    assert any_scripted_server.log.count("completion: inference is ") == 1
