"""A fake server that speaks Triton's gRPC protocol and answers as the test says."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any  # tritonclient has no types

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from inference.client.channel import add_tensors, read_tensors
from inference.protocol.arrays import (
    CANCEL,
    HEARTBEAT,
    Array,
    chunk_to_arrays,
    description_to_arrays,
)
from inference.protocol.completion import CompletionChunk, CompletionStats, Description, FinishReason


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request, as received."""

    model_name: str
    arrays: dict[str, Array]


# Yields the responses to a request: arrays, or the text of an error.
Answer = Callable[[ModelCall], AsyncIterator[Mapping[str, Array] | str]]


def say(
    *responses: Mapping[str, Array] | str,
    heartbeat_ms: float | None = 0.0,
    waits: bool = False,
    description: Description | None = None,
) -> Answer:
    """Answers heartbeats, unless that is None, and all else with the responses; then it ends, or waits for ever."""

    async def answer(call: ModelCall) -> AsyncGenerator[Mapping[str, Array] | str, None]:
        if heartbeat_ms is not None and HEARTBEAT in call.arrays:
            reported = Description(inputs=()) if description is None else description
            yield description_to_arrays(replace(reported, heartbeat_ms=heartbeat_ms))
            return
        for response in responses:
            yield response
        if waits:
            await asyncio.Event().wait()

    return answer


def build_last_chunk(text: str, is_told: bool = True) -> dict[str, Array]:
    """Returns the only chunk of a completion, as arrays."""
    ends = (len(text),) * (is_told and bool(text))
    log_probs = (-0.1,) * len(ends)
    chunk = CompletionChunk(
        text, text_ends=ends, log_probs=log_probs, finish_reason=FinishReason.LENGTH, stats=CompletionStats()
    )
    return chunk_to_arrays(chunk)


@asynccontextmanager
async def run_fake_triton(
    answer: Answer, address: str = "127.0.0.1:0", credentials: Any = None
) -> AsyncGenerator["FakeTriton", None]:
    """Runs the server inside the block, on a free port or at the address; over TLS with grpc's server credentials."""
    fake = FakeTriton(answer)
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(fake, server)
    bound = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    fake.url = address.replace(":0", f":{bound}")
    fake.stop = partial(server.stop, 0)
    await server.start()
    try:
        yield fake
    finally:
        await server.stop(0)


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # tritonclient has no types
    """The server: the requests it received, and an event that is set when a request is cancelled."""

    def __init__(self, answer: Answer) -> None:
        self.url = ""
        self.stop: Callable[[], Awaitable[None]]
        self.calls: list[ModelCall] = []
        self.metadata: list[dict[str, str]] = []  # of each of these
        self.cancelled = asyncio.Event()
        self.cancel_s = 0.0  # until what is cancelled ends
        self.num_broken = 0  # calls that were cancelled, of which tritonserver dies
        self._answer = answer

    async def ModelStreamInfer(self, requests: Any, context: Any) -> Any:  # noqa: N802  # the service's own name
        """Answers the one request of a stream; nothing if it is closed before it has one."""
        self.metadata.append(dict(context.invocation_metadata()))
        requests = aiter(requests)
        request = await anext(requests, None)
        if request is None:
            return
        call = ModelCall(request.model_name, read_tensors(request.inputs, request.raw_input_contents))
        self.calls.append(call)
        answering = asyncio.Queue[Any]()
        work = self._put(call, answering), self._cancel(request.id, requests, answering)
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            while (response := await answering.get()) is not None:
                yield _to_message(response)
        except asyncio.CancelledError:
            self.num_broken += 1
            raise
        finally:
            for each in tasks:
                each.cancel()

    async def _put(self, call: ModelCall, answering: asyncio.Queue[Any]) -> None:
        try:
            async for response in self._answer(call):
                answering.put_nowait(response)
        finally:
            answering.put_nowait(None)

    async def _cancel(self, request_id: str, requests: AsyncIterator[Any], answering: asyncio.Queue[Any]) -> None:
        async for message in requests:
            cancelled = read_tensors(message.inputs, message.raw_input_contents)[CANCEL].item()
            assert cancelled == request_id.encode()
            self.cancelled.set()
            await asyncio.sleep(self.cancel_s)
            answering.put_nowait(None)


def _to_message(response: Mapping[str, Array] | str) -> Any:
    if isinstance(response, str):
        return service_pb2.ModelStreamInferResponse(error_message=response)
    message = service_pb2.ModelStreamInferResponse()
    add_tensors(message.infer_response.outputs, message.infer_response.raw_output_contents, response)
    return message
