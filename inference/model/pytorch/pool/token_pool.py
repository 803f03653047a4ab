"""One pool of keys and values for all sequences of a model.

The keys and values of one token, in all layers, are in one *slot*. They are written once and never change. So sequences
that begin with the same tokens have the same slots, and to copy a sequence is to hold its slots once more. A slot that
nobody holds is free.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from inference.errors import OverloadedError
from inference.model.pytorch.pool.planes import LayerShape, Planes

Slots = npt.NDArray[np.int64]  # numbers of slots, each once


class TokenPool:
    """The slots of a model. Used by one thread, but for `release_later`."""

    def __init__(
        self, layers: Sequence[LayerShape], dtype: torch.dtype, device: torch.device, capacity: int = 256
    ) -> None:
        """Allocates `capacity` slots. Raises OverloadedError."""
        self.planes = Planes(layers, dtype, device, capacity)
        self.slot_nbytes = self.planes.slot_nbytes
        self._num_holders = np.zeros(capacity, dtype=np.int32)
        self._free = list(range(capacity))[::-1]  # the lowest numbers are taken first
        self._released: deque[Slots] = deque()

    @property
    def num_free(self) -> int:
        """The number of slots that nobody holds."""
        self._collect()
        return len(self._free)

    def allocate(self, num_slots: int) -> Slots:
        """Free slots, which the caller holds from now on. Raises OverloadedError, with nothing changed."""
        num_missing = num_slots - self.num_free
        if num_missing > 0:
            self._grow(num_missing)
        start = len(self._free) - num_slots
        slots = np.array(self._free[start:][::-1], dtype=np.int64)
        del self._free[start:]
        self._num_holders[slots] = 1
        return slots

    def count_holders(self, slots: Slots) -> npt.NDArray[np.int32]:
        """How many hold each slot."""
        return self._num_holders[slots]

    def hold(self, slots: Slots) -> None:
        """Holds slots once more."""
        self._num_holders[slots] += 1

    def release(self, slots: Slots) -> None:
        """Ends one hold of each slot."""
        self._num_holders[slots] -= 1
        self._free += slots[self._num_holders[slots] == 0][::-1].tolist()

    def release_later(self, slots: Slots) -> None:
        """The same, from any thread: an object that holds slots may be collected anywhere."""
        self._released.append(slots)

    def _collect(self) -> None:
        while self._released:
            self.release(self._released.popleft())

    def _grow(self, num_missing: int) -> None:
        before = self.planes.capacity
        try:
            self.planes.grow(before + max(before, num_missing))
        except OverloadedError:
            if num_missing >= before:
                raise
            self.planes.grow(before + num_missing)
        capacity = self.planes.capacity
        self._num_holders = np.concatenate([self._num_holders, np.zeros(capacity - before, dtype=np.int32)])
        self._free = [*range(before, capacity)][::-1] + self._free
