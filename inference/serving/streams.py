"""gRPC streams to the models of one server. Requests and responses are arrays; errors become MidtokenErrors.

All streams share one channel. Unary calls are never used, because the bundled server crashes when one is cancelled
(triton-inference-server issue 7368).
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

# If the model's process dies during a request, that request is never answered, but the next one is refused at once. So
# an unanswered heartbeat is requested again, and the wait doubles each time.
_FIRST_HEARTBEAT_WAIT_S = 3.0

# By default, Triton closes a connection that sends pings more often than every 300 s.
_KEEPALIVE = KeepAliveOptions(keepalive_time_ms=310_000, keepalive_timeout_ms=20_000)

_Response = TypeVar("_Response")


class TritonStreams:
    """One channel to the server at `url`, a "host:port" that speaks Triton's gRPC protocol."""

    def __init__(self, url: str, idle_timeout_s: float) -> None:
        """Opens no connection yet; the first call does. Must be called in the event loop that will use the streams."""
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
        """Yields `read(response)` for each response, up to and including the first for which `is_last` is true.

        Closing the generator or cancelling the task that reads it cancels the request on the server.
        Raises InvalidRequestError, OverloadedError, ServerUnreachableError or ServerError. No response within the
        idle timeout is a ServerError.
        """
        responses = self._server.stream_infer(_requests(model_name, arrays, types))
        end: _Response | MidtokenError | None = None  # the last response or an error; passed on once the stream ended
        try:
            async for received in self._receive(responses):
                item = received if isinstance(received, MidtokenError) else read(received)
                if isinstance(item, MidtokenError) or is_last(item):
                    end = item
                else:
                    yield item
        finally:
            # Only while the stream is open. If a cancel arrives as the stream ends, Triton 2.51 keeps a reference to
            # the model, and its shutdown then waits until the timeout.
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
        """Returns for how many milliseconds the model has made no progress; see inference/protocol/heartbeat.py.

        `required_input` is the name of the text input that the model requires. Raises ServerUnreachableError or
        ServerError. No answer within `timeout_s` is a ServerError.
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
        """Returns whether the server reports the model as ready. It does so even after the model's process has died."""
        try:
            ready: bool = await self._server.is_model_ready(model_name, client_timeout=self._idle_timeout_s)
        except (InferenceServerException, grpc.RpcError):
            return False
        return ready

    async def close(self) -> None:
        """Closes the connection and every stream on it."""
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
            reason = error.details().rpartition(": ")[2]  # gRPC puts what it tried before it, address by address
            return ServerUnreachableError(f"no server answers at {self._url}: {reason}")
        return ServerError(f"the server at {self._url} failed ({error.code().name}): {error.details()}")


async def _requests(model_name: str, arrays: Arrays, types: FieldTypes) -> AsyncIterator[dict[str, Any]]:
    inputs = []
    for name, array in arrays.items():
        inputs.append(InferInput(name, list(array.shape), types[name][0]))
        inputs[-1].set_data_from_numpy(array)
    yield {"model_name": model_name, "inputs": inputs}
