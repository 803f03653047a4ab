"""A `RowStore` on torch."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inference.model.pytorch.pool import Planes, Segment
from inference.model.pytorch.runner import Runner

_NUM_FIRST_ROWS = 256


class TorchRowStore:
    """A `RowStore` on one torch device."""

    def __init__(self, runner: Runner) -> None:
        """Allocates some rows. Raises OverloadedError."""
        self.max_tokens = runner.max_tokens
        self._runner = runner
        self._planes = Planes(runner.layers, runner.dtype, runner.device, _NUM_FIRST_ROWS)
        self._planes.fill_zeros(0)  # even a masked NaN gives NaN
        self._positions = np.zeros(_NUM_FIRST_ROWS, dtype=np.int64)

    @property
    def capacity(self) -> int:
        """The number of rows."""
        return self._planes.capacity

    def grow(self, num_rows: int) -> None:
        """Increases the capacity to at least `num_rows`. Raises OverloadedError, with the store unchanged."""
        num_new = num_rows - self.capacity
        if num_new > 0:
            self._planes.grow(num_rows)
            self._planes.fill_zeros(num_rows - num_new)
            self._positions = np.concatenate([self._positions, np.zeros(num_new, dtype=np.int64)])

    def forward(
        self,
        token_ids: Sequence[int],
        rows: Sequence[int],
        depths: Sequence[int],
        visible: npt.NDArray[np.bool_],
        wanted: Sequence[int],
    ) -> npt.NDArray[np.float32]:
        """Forwards tokens in one pass, as `RowStore.forward` says."""
        new_slots, positions, num_used = np.array(rows), np.array(depths), visible.shape[1]
        self._positions[new_slots] = positions
        keys = np.arange(num_used)
        segment = Segment(self._planes, new_slots, positions, keys, self._positions[:num_used], visible)
        found = self._runner.forward_segments(token_ids, [segment], wanted)
        logits: npt.NDArray[np.float32] = found.cpu().float().numpy()
        return logits
