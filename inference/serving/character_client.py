"""The async client of the character-level model: a request out, its answer back, one gRPC stream for each."""

import numpy as np

from inference.errors import InvalidRequestError, ServerError
from inference.protocol import characters
from inference.protocol.arrays import to_array
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.serving.streams import TritonStreams

MODEL_NAME = "characters"
# The first request loads the model, requests wait for each other, and each may take a step of the model for each byte.
ANSWER_TIMEOUT_S = 600.0

_DEAD = "is not healthy"  # Triton's words for a process that has ended


class CharacterClient:
    """Answers from the server at `url`, a "host:port" that speaks Triton's gRPC protocol."""

    def __init__(self, url: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Connects with the first call. Call it inside the event loop that will use it."""
        self._streams = TritonStreams(url, timeout_s)

    async def ask(self, request: CharacterRequest) -> CharacterAnswer:
        """The answer. A cancelled task's request is dropped by the server if it still waits there.

        Raises InvalidRequestError, ServerUnreachableError or ServerError, the last also when no answer comes in time.
        """
        arrays, types = characters.request_to_arrays(request), characters.REQUEST_TYPES
        read = characters.answer_from_arrays
        (answer,) = [each async for each in self._streams.stream(MODEL_NAME, arrays, types, read, lambda _: True)]
        return answer

    async def probe(self) -> None:
        """Raises ServerError where the process that runs the model has died; Triton never starts it again.

        What is asked is refused at once, so that the model is not loaded for it. A model that is busy is alive.
        """
        types = characters.REQUEST_TYPES
        arrays = {name: to_array(("nothing",), np.object_) for name in ("text", "ask")}
        try:
            async for _ in self._streams.stream(MODEL_NAME, arrays, types, dict, lambda _: True):
                pass
        except InvalidRequestError:
            return
        except ServerError as error:
            if _DEAD in str(error):
                raise

    async def close(self) -> None:
        """Ends the connection and every stream on it."""
        await self._streams.close()
