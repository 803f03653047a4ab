"""The async client of the character-level model: a request out, its answer back, one gRPC stream for each."""

from inference.protocol import characters
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.serving.streams import TritonStreams

MODEL_NAME = "characters"
# The first request loads the model, requests wait for each other, and each may take a step of the model for each byte.
ANSWER_TIMEOUT_S = 600.0
HEARTBEAT_TIMEOUT_S = 60.0


class CharacterClient:
    """Answers from the server at `url`, a "host:port" that speaks Triton's gRPC protocol."""

    model_name = MODEL_NAME

    def __init__(self, url: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Connects with the first call. Call it inside the event loop that will use it."""
        self._streams = TritonStreams(url, timeout_s)

    async def ask(self, request: CharacterRequest) -> CharacterAnswer:
        """The answer. Cancelling the task cancels the request on the server.

        Raises InvalidRequestError, ServerUnreachableError or ServerError, the last also when no answer comes in time.
        """
        arrays, types = characters.request_to_arrays(request), characters.REQUEST_TYPES
        read = characters.answer_from_arrays
        (answer,) = [each async for each in self._streams.stream(MODEL_NAME, arrays, types, read, lambda _: True)]
        return answer

    async def read_heartbeat_ms(self, timeout_s: float = HEARTBEAT_TIMEOUT_S) -> float:
        """How long the model has made no progress, in milliseconds; 0 while it has nothing to do.

        Does not wait behind other requests and does not load the model. Raises ServerUnreachableError or ServerError,
        the last also when no answer comes within `timeout_s`.
        """
        return await self._streams.read_heartbeat_ms(MODEL_NAME, "text", timeout_s)

    async def close(self) -> None:
        """Ends the connection and every stream on it."""
        await self._streams.close()
