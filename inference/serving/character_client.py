"""The async client of the character-level model. Each request has its own gRPC stream."""

from inference.protocol import characters
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.serving.channel import Tls
from inference.serving.streams import TritonStreams

MODEL_NAME = "characters"
# The first request loads the model, requests run one after the other, and one may need a forward pass for each byte.
ANSWER_TIMEOUT_S = 600.0
HEARTBEAT_TIMEOUT_S = 60.0


class CharacterClient:
    """Answers from the server at `url`, a "host:port" that speaks Triton's gRPC protocol."""

    model_name = MODEL_NAME

    def __init__(self, url: str, timeout_s: float = ANSWER_TIMEOUT_S, tls: Tls | None = None) -> None:
        """Opens no connection yet; the first call does. Must be called in the event loop that will use the client."""
        self._streams = TritonStreams(url, timeout_s, tls)

    async def ask(self, request: CharacterRequest) -> CharacterAnswer:
        """Returns the answer. Cancelling the task cancels the request on the server.

        Raises InvalidRequestError, ServerUnreachableError or ServerError. No answer in time is a ServerError.
        """
        arrays, types = characters.request_to_arrays(request), characters.REQUEST_TYPES
        read = characters.answer_from_arrays
        (answer,) = [each async for each in self._streams.stream(MODEL_NAME, arrays, types, read, lambda _: True)]
        return answer

    async def read_heartbeat_ms(self, timeout_s: float = HEARTBEAT_TIMEOUT_S) -> float:
        """Returns for how many milliseconds the model has made no progress; 0 while it is idle.

        Does not wait for other requests and does not load the model. Raises ServerUnreachableError or ServerError.
        No answer within `timeout_s` is a ServerError.
        """
        return await self._streams.read_heartbeat_ms(MODEL_NAME, "text", timeout_s)

    async def close(self) -> None:
        """Closes the connection and every stream on it."""
        await self._streams.close()
