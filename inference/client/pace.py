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
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache

# The distance is stable if a share p of the requests is answered, with 0.8^p * 1.2^(1 - p) = 1: 45 %.
_LONGER, _SHORTER = 1.2, 0.8
_MIN_S = 0.01  # a shorter distance is none
_MAX_S = 0.25  # about two keys
_PAUSE_FACTOR = 1.5  # of the distance
_MAX_DOCUMENTS = 256  # whose distances are known


@dataclass(slots=True)
class _Typing:
    """The requests of one document. Times are in seconds."""

    sent_at: float = -math.inf
    distance: float = 0.0


class Pace:
    """The pace of one client's requests. Not thread-safe."""

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """`clock` and `sleep`: in seconds."""
        self._clock, self._sleep = clock, sleep
        self._find: Callable[[str], _Typing] = lru_cache(_MAX_DOCUMENTS)(lambda _document: _Typing())

    async def wait(self, document: str) -> None:
        """Returns when a request for the document may be sent. It is cancelled if another key comes before."""
        typing, now = self._find(document), self._clock()
        if now < typing.sent_at + typing.distance:
            await self._sleep(typing.sent_at + _PAUSE_FACTOR * typing.distance - now)
        typing.sent_at = self._clock()

    def note_end(self, document: str, is_answered: bool) -> None:
        """Notes the end of a request that was sent: whether it got text, or reached an end of its own."""
        typing = self._find(document)
        longer = min(max(typing.distance * _LONGER, _MIN_S), _MAX_S)
        distance = typing.distance * _SHORTER if is_answered else longer
        typing.distance = distance if distance >= _MIN_S else 0.0
