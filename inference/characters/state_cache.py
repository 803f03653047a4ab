"""The last states of the character-level model, found again by the text that they have read."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

_State = TypeVar("_State")


@dataclass(frozen=True, slots=True)
class Known(Generic[_State]):
    """A state that has read the first bytes of a text."""

    state: _State
    num_bytes: int


class StateMemory(Generic[_State]):
    """At most `capacity` states; the one that was used longest ago goes first.

    Whoever asks for the next byte of a growing text finds the state of the question before.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._states: OrderedDict[tuple[Hashable, bytes], _State] = OrderedDict()

    def find(self, origin: Hashable, text: bytes) -> Known[_State] | None:
        """The state that has read most of the text, of those that were opened in the same way."""
        texts = [known for other, known in self._states if other == origin and text.startswith(known)]
        if not texts:
            return None
        longest = max(texts, key=len)
        self._states.move_to_end((origin, longest))
        return Known(self._states[origin, longest], len(longest))

    def keep(self, origin: Hashable, text: bytes, state: _State) -> None:
        """Keeps the state, which was opened so and has read the text."""
        self._states[origin, text] = state
        self._states.move_to_end((origin, text))
        if len(self._states) > self._capacity:
            self._states.popitem(last=False)
