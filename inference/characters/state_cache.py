"""A cache of states of the character-level model, by the text that they have read."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

_State = TypeVar("_State")


@dataclass(frozen=True, slots=True)
class CachedState(Generic[_State]):
    """A state that has read the first bytes of a text."""

    state: _State
    num_bytes: int


class StateCache(Generic[_State]):
    """At most `capacity` states. The least recently used is evicted first.

    A client that sends a growing text gets the state of its last request.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._states: OrderedDict[tuple[Hashable, bytes], _State] = OrderedDict()

    def find(self, origin: Hashable, text: bytes) -> CachedState[_State] | None:
        """The state of this origin that has read the longest beginning of the text."""
        texts = [known for other, known in self._states if other == origin and text.startswith(known)]
        if not texts:
            return None
        longest = max(texts, key=len)
        self._states.move_to_end((origin, longest))
        return CachedState(self._states[origin, longest], len(longest))

    def put(self, origin: Hashable, text: bytes, state: _State) -> None:
        """Adds a state that has read the text. `origin`: how the state was opened; stored too, so keep it small."""
        self._states[origin, text] = state
        self._states.move_to_end((origin, text))
        if len(self._states) > self._capacity:
            self._states.popitem(last=False)
