"""The async client of a completion server: requests out, chunks in, one gRPC stream per completion.

Make one client per process and event loop: all its streams share one channel.
"""

from collections.abc import AsyncGenerator

from inference.errors import OverloadedError
from inference.protocol import completion
from inference.protocol.completion import CompletionChunk, CompletionRequest
from inference.serving.streams import TritonStreams

MODEL_NAME = "completion"
IDLE_TIMEOUT_S = 60.0  # the stream of a server process that has died stays open and silent


class CompletionClient:
    """Completions from the server at `url`, a "host:port" that speaks Triton's gRPC protocol."""

    model_name = MODEL_NAME

    def __init__(self, url: str, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        """Connects with the first call. Call it inside the event loop that will use it."""
        self._streams = TritonStreams(url, idle_timeout_s)

    def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        """The chunks that answer the request, the last one with `is_last`.

        Closing the generator or cancelling the task that reads it cancels the completion on the server.
        Raises InvalidRequestError, OverloadedError, ServerUnreachableError or ServerError, the last also when no
        chunk comes for the idle timeout.
        """
        arrays = completion.request_to_arrays(request)
        return self._streams.stream(
            MODEL_NAME, arrays, completion.REQUEST_TYPES, completion.chunk_from_arrays, lambda chunk: chunk.is_last
        )

    async def read_heartbeat_ms(self, timeout_s: float = IDLE_TIMEOUT_S) -> float:
        """How long the engine has made no progress, in milliseconds; 0 while it has nothing to do.

        Does not wait behind other requests. Raises ServerUnreachableError or ServerError, the last also when no
        answer comes within `timeout_s`.
        """
        return await self._streams.read_heartbeat_ms(MODEL_NAME, "prefix", timeout_s)

    async def probe(self) -> None:
        """Returns once a real, tiny completion has come back. It waits behind other requests.

        Returns at once when the server has no room for it. Raises ServerUnreachableError or ServerError.
        """
        try:
            async for _ in self.stream(CompletionRequest("a", max_tokens=1)):
                pass
        except OverloadedError:
            return

    async def is_ready(self) -> bool:
        """Whether the server calls the model ready. It does so even when the process that runs the model has died."""
        return await self._streams.is_model_ready(MODEL_NAME)

    async def close(self) -> None:
        """Ends the connection and every stream on it."""
        await self._streams.close()
