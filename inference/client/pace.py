"""When a key's request is sent to a server that cannot keep up with the typing.

A superseded request costs a server nearly as much as an answered one: a stream, two messages between processes, perhaps
a forward pass. If most requests are superseded, no time is left for answers. So the requests of a document keep a
distance in time:

1. A request that is superseded before its first text makes the distance longer, an answered one shorter. While the
   server keeps up, there is no distance, and every request is sent at once.
2. A key that comes too early is not sent. The next one after the distance is sent as soon as it is typed, so that the
   server has all the time until the key after it.
3. The last key before a pause is sent late, when no other one has come for a while.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from inference.protocol.completion import CompletionChunk, CompletionRequest, FinishReason

_LONGER, _SHORTER = 1.2, 0.8  # the distance is stable if about five of nine requests are answered
_MIN_S = 0.01  # a shorter distance is none
_MAX_S = 0.25  # about two keys
_PAUSE_FACTOR = 1.5  # of the distance
_UNANSWERED = (FinishReason.SUPERSEDED, FinishReason.DEADLINE, FinishReason.CANCELLED)  # without text before
_MAX_DOCUMENTS = 256  # whose distances are known

Send = Callable[[CompletionRequest], AsyncGenerator[CompletionChunk, None]]


@dataclass(slots=True)
class _Typing:
    """The requests of one document. Times are in seconds."""

    sent_at: float | None = None
    distance: float = 0.0

    def find_delay(self, now: float) -> float:
        if self.sent_at is None or now >= self.sent_at + self.distance:
            return 0.0
        return self.sent_at + _PAUSE_FACTOR * self.distance - now

    def note_end(self, is_answered: bool) -> None:
        longer = min(max(self.distance * _LONGER, _MIN_S), _MAX_S)
        self.distance = self.distance * _SHORTER if is_answered else longer
        if self.distance < _MIN_S:
            self.distance = 0.0


class Throttle:
    """Sends the requests of one client. Not thread-safe."""

    def __init__(
        self, send: Send, clock: Callable[[], float], sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        """`send`: sends a request at once, as `Client.stream`. `clock` and `sleep`: in seconds."""
        self._send, self._clock, self._sleep = send, clock, sleep
        self._documents: dict[str, _Typing] = {}

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        """Yields the chunks. Nothing is sent if the generator is closed while the request is held back."""
        typing, is_answered = self._find(request.document), False
        delay = typing.find_delay(self._clock())
        if delay > 0:
            await self._sleep(delay)
        typing.sent_at = self._clock()
        try:
            async with aclosing(self._send(request)) as chunks:
                async for chunk in chunks:
                    is_answered = is_answered or chunk.finish_reason not in _UNANSWERED
                    yield chunk
        finally:
            typing.note_end(is_answered)

    def _find(self, document: str) -> _Typing:
        typing = self._documents.pop(document, None) or _Typing()
        self._documents[document] = typing  # the latest is last
        if len(self._documents) > _MAX_DOCUMENTS:
            del self._documents[next(iter(self._documents))]
        return typing
