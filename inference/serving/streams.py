"""gRPC streams to the models of one server: a request's arrays out, arrays back, errors as ours.

A stream, never a unary call: the bundled server crashes when a unary call is cancelled (triton-inference-server issue
7368). All streams share one channel.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, TypeVar  # tritonclient has no types

import grpc
from tritonclient.grpc import InferInput, KeepAliveOptions
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from inference.errors import MidtokenError, ServerError, ServerUnreachableError
from inference.protocol.arrays import Array, FieldTypes
from inference.protocol.error_text import error_from_text

Arrays = Mapping[str, Array]

# Triton tolerates a ping each 300 s by default; more often counts as abuse and closes the connection.
_KEEPALIVE = KeepAliveOptions(keepalive_time_ms=310_000, keepalive_timeout_ms=20_000)

_Response = TypeVar("_Response")


class TritonStreams:
    """One channel to the server at `url`, a "host:port" that speaks Triton's gRPC protocol."""

    def __init__(self, url: str, idle_timeout_s: float) -> None:
        """Connects with the first call. Call it inside the event loop that will use it."""
        self._url = url
        self._idle_timeout_s = idle_timeout_s
        self._server = InferenceServerClient(url, keepalive_options=_KEEPALIVE)

    async def stream(
        self,
        model_name: str,
        arrays: Arrays,
        types: FieldTypes,
        read: Callable[[Arrays], _Response],
        is_last: Callable[[_Response], bool],
    ) -> AsyncGenerator[_Response, None]:
        """What `read` makes of each response, until one is the last.

        Closing the generator or cancelling the task that reads it cancels the request on the server.
        Raises InvalidRequestError, OverloadedError, ServerUnreachableError or ServerError, the last also when nothing
        comes for the idle timeout.
        """
        responses = self._server.stream_infer(_requests(model_name, arrays, types))
        end: _Response | MidtokenError | None = None  # what ends the stream, held back until it has ended
        try:
            async for received in self._receive(responses):
                item = received if isinstance(received, MidtokenError) else read(received)
                if isinstance(item, MidtokenError) or is_last(item):
                    end = item
                else:
                    yield item
        finally:
            # Only an open stream: a cancel that crosses the end of a stream makes Triton 2.51 lose a reference to the
            # model, and its shutdown then waits in vain until its time is over.
            if end is None:
                responses.cancel()
        if end is None:
            raise ServerError(f"the server at {self._url} broke off in the middle of an answer")
        if isinstance(end, MidtokenError):
            raise end
        yield end

    async def is_model_ready(self, model_name: str) -> bool:
        """What the server says of itself. It says yes even when the process that runs the model has died."""
        try:
            ready: bool = await self._server.is_model_ready(model_name, client_timeout=self._idle_timeout_s)
        except (InferenceServerException, grpc.RpcError):
            return False
        return ready

    async def close(self) -> None:
        """Ends the connection and every stream on it."""
        await self._server.close()

    async def _receive(self, responses: Any) -> AsyncIterator[Arrays | MidtokenError]:
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
                yield error_from_text(error.message())
            else:
                outputs = result.get_response().outputs
                yield {output.name: result.as_numpy(output.name) for output in outputs}

    def _to_ours(self, error: Any) -> ServerError:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return ServerUnreachableError(f"no server answers at {self._url}: {error.details()}")
        return ServerError(f"the server at {self._url} failed ({error.code().name}): {error.details()}")


async def _requests(model_name: str, arrays: Arrays, types: FieldTypes) -> AsyncIterator[dict[str, Any]]:
    inputs = []
    for name, array in arrays.items():
        inputs.append(InferInput(name, list(array.shape), types[name][0]))
        inputs[-1].set_data_from_numpy(array)
    yield {"model_name": model_name, "inputs": inputs}
