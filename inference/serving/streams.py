"""gRPC streams to the models of one server. Requests and responses are arrays; errors become MidtokenErrors.

All streams share one channel, and each has a call of its own. Unary calls are never used for requests, because the
bundled server crashes when one is cancelled (triton-inference-server issue 7368).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeVar  # grpc and tritonclient have no types

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from inference.errors import MidtokenError, ServerError, ServerUnreachableError
from inference.protocol.arrays import (
    HEARTBEAT,
    HEARTBEAT_TYPES,
    Array,
    FieldTypes,
    error_from_text,
    heartbeat_from_arrays,
    to_array,
)
from inference.serving.channel import Tls, open_channel
from inference.serving.open_call import CallOpener
from inference.serving.tensors import build_request, read_outputs

Arrays = Mapping[str, Array]

# If the model's process dies during a request, that request is never answered, but the next one is refused at once. So
# an unanswered heartbeat is requested again, and the wait doubles each time.
_FIRST_HEARTBEAT_WAIT_S = 3.0

_CLOSE_S = 1.0  # for streams that were answered to end

_Response = TypeVar("_Response")


class TritonStreams:
    """One channel to the server at `url`, a "host:port" that speaks Triton's gRPC protocol."""

    def __init__(self, url: str, idle_timeout_s: float, tls: Tls | None = None) -> None:
        """Opens no connection yet; the first call does. Must be called in the event loop that will use the streams."""
        self._url = url
        self._idle_timeout_s = idle_timeout_s
        self._channel = open_channel(url, tls)
        self._server = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._calls = CallOpener(self._server.ModelStreamInfer)
        self._endings: set[asyncio.Task[None]] = set()

    async def stream(
        self,
        model_name: str,
        arrays: Arrays,
        types: FieldTypes,
        read: Callable[[Arrays], _Response],
        is_last: Callable[[_Response], bool],
        opens_next: bool = False,
    ) -> AsyncGenerator[_Response, None]:
        """Yields `read(response)` for each response, up to and including the first for which `is_last` is true.

        Closing the generator or cancelling the task that reads it cancels the request on the server. `opens_next`:
        another request will follow soon.
        Raises InvalidRequestError, OverloadedError, ServerUnreachableError or ServerError. No response within the
        idle timeout is a ServerError.
        """
        call = self._calls.take()
        has_ended = False
        try:
            await self._send(call, build_request(model_name, arrays, types))
            if opens_next:
                self._calls.open_next()
            while not has_ended:
                received = await self._receive(call)
                item = received if isinstance(received, MidtokenError) else read(received)
                if isinstance(item, MidtokenError) or is_last(item):
                    has_ended = True
                    self._end(call)
                if isinstance(item, MidtokenError):
                    raise item
                yield item
        finally:
            # Only while the stream is open. If a cancel arrives as the stream ends, Triton 2.51 keeps a reference to
            # the model, and its shutdown then waits until the timeout.
            if not has_ended:
                call.cancel()

    async def read_heartbeat_ms(
        self, model_name: str, required_input: str, timeout_s: float, first_wait_s: float = _FIRST_HEARTBEAT_WAIT_S
    ) -> float:
        """Returns for how many milliseconds the model has made no progress; see inference/protocol/arrays.py.

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
        request = service_pb2.ModelReadyRequest(name=model_name)
        try:
            answer = await self._server.ModelReady(request, timeout=self._idle_timeout_s)
        except grpc.RpcError:
            return False
        return bool(answer.ready)

    async def read_server_version(self) -> str:
        """Returns the name and version of the server, as it says them. Raises ServerUnreachableError or ServerError."""
        try:
            answer = await self._server.ServerMetadata(
                service_pb2.ServerMetadataRequest(), timeout=self._idle_timeout_s
            )
        except grpc.RpcError as error:
            raise self._to_ours(error) from None
        return f"{answer.name} {answer.version}"

    async def close(self) -> None:
        """Closes the connection and every stream on it."""
        self._calls.close()
        if self._endings:
            await asyncio.wait(self._endings, timeout=_CLOSE_S)
        await self._channel.close()

    async def _send(self, call: Any, request: Any) -> None:
        """Sends the only request of a call."""
        try:
            await call.write(request)
            await call.done_writing()
        except grpc.RpcError as error:
            raise self._to_ours(error) from None

    async def _receive(self, call: Any) -> Arrays | MidtokenError:
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                response = await call.read()
        except TimeoutError:
            raise ServerError(f"the server at {self._url} sent nothing for {self._idle_timeout_s:g} s") from None
        except grpc.RpcError as error:
            raise self._to_ours(error) from None
        if response is grpc.aio.EOF:
            raise ServerError(f"the server at {self._url} ended its answer before the last part")
        if response.error_message:
            return error_from_text(response.error_message)
        return read_outputs(response.infer_response)

    def _end(self, call: Any) -> None:
        """Lets a call end by itself, while its answer is used already."""
        task = asyncio.create_task(_read_end(call, self._idle_timeout_s))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    def _to_ours(self, error: Any) -> ServerError:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            reason = error.details().rpartition(": ")[2]  # gRPC puts what it tried before it, address by address
            return ServerUnreachableError(f"no server answers at {self._url}: {reason}")
        return ServerError(f"the server at {self._url} failed ({error.code().name}): {error.details()}")


async def _read_end(call: Any, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while await call.read() is not grpc.aio.EOF:
                pass
    except (TimeoutError, grpc.RpcError):
        call.cancel()
