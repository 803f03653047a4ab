"""Which slot of a llama-server has the text of a document.

To read a text takes far longer than to complete a keystroke. With more documents than slots, a document therefore keeps
its slot for a turn, in which several keystrokes are completed: four times what its text took to read, or until it asks
for nothing for half a second. Then the document that has waited longest gets the slot that was used least recently.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_TURN = 4.0  # times what it took to read the text
_IDLE_S = 0.5  # without a request, the turn is over
_FORGOTTEN_S = 1.0  # without a request, a document waits no longer
_LOOK_S = 0.02


@dataclass(eq=False, slots=True)
class Slot:
    """A slot, which does one thing at a time, and what it has read."""

    number: int
    document: str | None = None  # with its tenant
    tenant: str | None = None  # whose text it has
    token_ids: list[int] = field(default_factory=list)  # those that it has, or more
    headers: Mapping[str, str] = field(default_factory=dict)  # of its requests
    read_s: float = 0.0  # how long it took to read them
    taken_at: float = 0.0
    used_at: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_free(self, now: float) -> bool:
        """Whether another document may take it."""
        is_over = now - self.taken_at > _TURN * self.read_s or now - self.used_at > _IDLE_S
        return not self.lock.locked() and (self.document is None or is_over)


class Slots:
    """The slots of one server, each with a document."""

    def __init__(self, number: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._all = [Slot(each) for each in range(number)]
        self._clock = clock
        self._waiting: dict[str, float] = {}  # documents, the one that has waited longest first, and when they asked

    def __len__(self) -> int:
        return len(self._all)

    @asynccontextmanager
    async def use(self, document: str) -> AsyncIterator[Slot]:
        """Waits for the document's turn, and for what its slot does. Then the slot is the document's inside the block.

        A document keeps its place among those that wait, although its requests supersede each other.
        """
        while (slot := self._find(document)) is None:
            await asyncio.sleep(_LOOK_S)
        async with slot.lock:
            try:
                yield slot
            finally:
                slot.used_at = self._clock()

    def _find(self, document: str) -> Slot | None:
        slot = next((each for each in self._all if each.document == document), None) or self._take(document)
        if slot is not None:
            self._waiting.pop(document, None)
        return slot

    def _take(self, document: str) -> Slot | None:
        now = self._clock()
        self._waiting[document] = now
        self._waiting = {each: asked_at for each, asked_at in self._waiting.items() if now - asked_at < _FORGOTTEN_S}
        free = [each for each in self._all if each.is_free(now)]
        if not free or next(iter(self._waiting)) != document:
            return None
        slot = min(free, key=lambda each: each.used_at)
        slot.document, slot.taken_at, slot.used_at, slot.read_s = document, now, now, 0.0
        return slot
