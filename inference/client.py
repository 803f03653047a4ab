"""The async client of a completion server: requests out, chunks in, one gRPC stream per completion.

A stream, never a unary call: the bundled server crashes when a unary call is cancelled (triton-inference-server issue
7368). All streams share one channel; make one client per process and event loop.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any  # tritonclient has no types

import grpc
from tritonclient.grpc import InferInput, KeepAliveOptions
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from inference import wire
from inference.errors import MidtokenError, OverloadedError, ServerError, ServerUnreachableError
from inference.wire import CompletionChunk, CompletionRequest

MODEL_NAME = "completion"
IDLE_TIMEOUT_S = 60.0  # a stream whose server process died says nothing, for ever

# Triton tolerates a ping each 300 s by default; more often counts as abuse and closes the connection.
_KEEPALIVE = KeepAliveOptions(keepalive_time_ms=310_000, keepalive_timeout_ms=20_000)


class CompletionClient:
    """Completions from the server at `url`, a "host:port" that speaks Triton's gRPC protocol."""

    def __init__(self, url: str, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        """Connects with the first call. Call it inside the event loop that will use it."""
        self._url = url
        self._idle_timeout_s = idle_timeout_s
        self._server = InferenceServerClient(url, keepalive_options=_KEEPALIVE)

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        """The chunks that answer the request, the last one with `is_last`.

        Closing the generator or cancelling the task that reads it cancels the completion on the server.
        Raises InvalidRequestError, OverloadedError, ServerUnreachableError or ServerError, the last also when no
        chunk comes for the idle timeout.
        """
        responses = self._server.stream_infer(_requests(request))
        end: CompletionChunk | MidtokenError | None = None  # what ends the stream, held back until it has ended
        try:
            async for item in self._read(responses):
                if isinstance(item, MidtokenError) or item.is_last:
                    end = item
                else:
                    yield item
        finally:
            # Only an open stream: a cancel that crosses the end of a stream makes Triton 2.51 lose a reference to the
            # model, and its shutdown then waits in vain until its time is over.
            if end is None:
                responses.cancel()
        if isinstance(end, CompletionChunk):
            yield end
        else:
            raise end or ServerError(f"the server at {self._url} broke off in the middle of a completion")

    async def probe(self) -> None:
        """Returns once a real, tiny completion has come back; the only sign of life that does not lie.

        A server that is too busy to take it is alive. Raises ServerUnreachableError or ServerError.
        """
        try:
            async for _ in self.stream(CompletionRequest("a", max_tokens=1)):
                pass
        except OverloadedError:
            return

    async def is_ready(self) -> bool:
        """What the server says of itself. It says yes even when the process that runs the model has died."""
        try:
            ready: bool = await self._server.is_model_ready(MODEL_NAME, client_timeout=self._idle_timeout_s)
        except (InferenceServerException, grpc.RpcError):
            return False
        return ready

    async def close(self) -> None:
        """Ends the connection and every stream on it."""
        await self._server.close()

    async def _read(self, responses: Any) -> AsyncIterator[CompletionChunk | MidtokenError]:
        while True:
            try:
                async with asyncio.timeout(self._idle_timeout_s):
                    result, error = await anext(responses)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise ServerError(f"the server at {self._url} sent nothing for {self._idle_timeout_s:g} s") from None
            except grpc.RpcError as error:
                raise self._to_ours(error) from None
            if error is not None:
                yield wire.error_from_text(error.message())
            else:
                outputs = result.get_response().outputs
                yield wire.chunk_from_arrays({output.name: result.as_numpy(output.name) for output in outputs})

    def _to_ours(self, error: Any) -> ServerError:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return ServerUnreachableError(f"no server answers at {self._url}: {error.details()}")
        return ServerError(f"the server at {self._url} failed ({error.code().name}): {error.details()}")


async def _requests(request: CompletionRequest) -> AsyncIterator[dict[str, Any]]:
    inputs = []
    for name, array in wire.request_to_arrays(request).items():
        inputs.append(InferInput(name, list(array.shape), wire.REQUEST_TYPES[name][0]))
        inputs[-1].set_data_from_numpy(array)
    yield {"model_name": MODEL_NAME, "inputs": inputs}
