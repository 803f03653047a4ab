"""The last states of the character-level model, found again by the text that they have read."""

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
    """At most `capacity` states. The one that was used longest ago is dropped first.

    A client that asks about a growing text gets the state of its last question.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._states: OrderedDict[tuple[Hashable, bytes], _State] = OrderedDict()

    def find(self, origin: Hashable, text: bytes) -> CachedState[_State] | None:
        """The state that has read most of the text, among those of the same origin."""
        texts = [known for other, known in self._states if other == origin and text.startswith(known)]
        if not texts:
            return None
        longest = max(texts, key=len)
        self._states.move_to_end((origin, longest))
        return CachedState(self._states[origin, longest], len(longest))

    def put(self, origin: Hashable, text: bytes, state: _State) -> None:
        """Keeps a state that has read the text. `origin` says how it was opened, and is kept as long: keep it small."""
        self._states[origin, text] = state
        self._states.move_to_end((origin, text))
        if len(self._states) > self._capacity:
            self._states.popitem(last=False)
