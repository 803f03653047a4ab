"""The async client of a completion server. Each completion has its own gRPC stream.

Make one client for each process and event loop; all its streams share one channel.
"""

from collections.abc import AsyncGenerator

from inference.errors import OverloadedError
from inference.protocol import completion_arrays
from inference.protocol.completion import CompletionChunk, CompletionRequest
from inference.serving.channel import Tls
from inference.serving.streams import TritonStreams

MODEL_NAME = "completion"
IDLE_TIMEOUT_S = 60.0  # when the server's process dies, its streams stay open and receive nothing


class CompletionClient:
    """Completions from the server at `url`, a "host:port" that speaks Triton's gRPC protocol."""

    model_name = MODEL_NAME

    def __init__(self, url: str, idle_timeout_s: float = IDLE_TIMEOUT_S, tls: Tls | None = None) -> None:
        """Opens no connection yet; the first call does. Must be called in the event loop that will use the client."""
        self._streams = TritonStreams(url, idle_timeout_s, tls)

    def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        """Yields the chunks of the completion. The last one has `is_last`.

        Closing the generator or cancelling the task that reads it cancels the completion on the server.
        Raises InvalidRequestError, OverloadedError, ServerUnreachableError or ServerError. No chunk within the idle
        timeout is a ServerError.
        """
        arrays = completion_arrays.request_to_arrays(request)
        return self._streams.stream(
            MODEL_NAME,
            arrays,
            completion_arrays.REQUEST_TYPES,
            completion_arrays.chunk_from_arrays,
            lambda chunk: chunk.is_last,
            opens_next=True,
        )

    async def read_heartbeat_ms(self, timeout_s: float = IDLE_TIMEOUT_S) -> float:
        """Returns for how many milliseconds the engine has made no progress; 0 while it is idle.

        Does not wait for other requests. Raises ServerUnreachableError or ServerError. No answer within `timeout_s`
        is a ServerError.
        """
        return await self._streams.read_heartbeat_ms(MODEL_NAME, "prefix", timeout_s)

    async def probe(self) -> None:
        """Requests a completion of one token and waits for it. Other requests may run first.

        Returns at once when the server refuses it as overloaded. Raises ServerUnreachableError or ServerError.
        """
        try:
            async for _ in self.stream(CompletionRequest("a", max_tokens=1)):
                pass
        except OverloadedError:
            return

    async def is_ready(self) -> bool:
        """Returns whether the server reports the model as ready. It does so even after the model's process has died."""
        return await self._streams.is_model_ready(MODEL_NAME)

    async def read_server_version(self) -> str:
        """Returns the name and version of the server. Raises ServerUnreachableError or ServerError."""
        return await self._streams.read_server_version()

    async def close(self) -> None:
        """Closes the connection and every stream on it."""
        await self._streams.close()
