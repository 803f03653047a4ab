"""gRPC streams to the models of one server: a request's arrays out, arrays back, errors as MidtokenErrors.

A stream, never a unary call: the bundled server crashes when a unary call is cancelled (triton-inference-server issue
7368). All streams share one channel.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, TypeVar  # tritonclient has no types

import grpc
import numpy as np
from tritonclient.grpc import InferInput, KeepAliveOptions
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from inference.errors import MidtokenError, ServerError, ServerUnreachableError
from inference.protocol.arrays import Array, FieldTypes, to_array
from inference.protocol.error_text import error_from_text
from inference.protocol.heartbeat import HEARTBEAT, HEARTBEAT_TYPES, heartbeat_from_arrays

Arrays = Mapping[str, Array]

# A request whose process dies meanwhile stays unanswered, but the next one is refused at once. So a heartbeat that does
# not come is asked for again, each time after twice the wait.
_FIRST_HEARTBEAT_WAIT_S = 3.0

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
        """What `read` returns for each response, up to the one for which `is_last` is true.

        Closing the generator or cancelling the task that reads it cancels the request on the server.
        Raises InvalidRequestError, OverloadedError, ServerUnreachableError or ServerError, the last also when nothing
        comes for the idle timeout.
        """
        responses = self._server.stream_infer(_requests(model_name, arrays, types))
        end: _Response | MidtokenError | None = None  # the last response or an error, yielded after the stream's end
        try:
            async for received in self._receive(responses):
                item = received if isinstance(received, MidtokenError) else read(received)
                if isinstance(item, MidtokenError) or is_last(item):
                    end = item
                else:
                    yield item
        finally:
            # Only while the stream is open: a cancel that meets the end of a stream makes Triton 2.51 keep a reference
            # to the model, and its shutdown then waits for that until its timeout.
            if end is None:
                responses.cancel()
        if end is None:
            raise ServerError(f"the server at {self._url} ended its answer before the last part")
        if isinstance(end, MidtokenError):
            raise end
        yield end

    async def read_heartbeat_ms(
        self, model_name: str, required_input: str, timeout_s: float, first_wait_s: float = _FIRST_HEARTBEAT_WAIT_S
    ) -> float:
        """How long the model has made no progress, in milliseconds; see inference/protocol/heartbeat.py.

        `required_input` names the text that each request to the model must have. Raises ServerUnreachableError or
        ServerError, the last also when no answer comes within `timeout_s`.
        """
        arrays = {required_input: to_array(("",), np.object_), HEARTBEAT: np.array([True])}
        types: FieldTypes = {required_input: ("BYTES", np.object_), **HEARTBEAT_TYPES}
        wait_s = first_wait_s
        while timeout_s > 0:
            answers = self.stream(model_name, arrays, types, heartbeat_from_arrays, lambda _: True)
            try:
                async with asyncio.timeout(min(wait_s, timeout_s)):
                    (without_progress_ms,) = [each async for each in answers]
                    return without_progress_ms
            except TimeoutError:
                timeout_s, wait_s = timeout_s - wait_s, 2 * wait_s
        raise ServerError(f"the model {model_name} at {self._url} does not answer")

    async def is_model_ready(self, model_name: str) -> bool:
        """Whether the server calls the model ready. It does so even when the process that runs the model has died."""
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
