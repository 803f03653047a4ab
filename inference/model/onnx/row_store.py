"""A `RowStore` on onnxruntime.

Attention writes new keys and values after the stored ones only. So new tokens are forwarded there, see what `visible`
says and those before them in the pass, and are copied to their rows afterwards. The new tokens of a text that is read
at once mostly have the last rows of the store, and are there already.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inference.model.onnx.graph import HIDDEN
from inference.model.onnx.model import OnnxModel

_NUM_ROWS = 256
_NUM_SPARE_ROWS = 64  # after the store's rows, for new tokens
_FIRST = 1  # place of the store's first row: a pass with nothing before it would not use the positions that it is given


class OnnxRowStore:
    """A `RowStore` on the CPU."""

    def __init__(self, model: OnnxModel) -> None:
        """Allocates some rows. Raises OverloadedError."""
        self.max_tokens = model.max_tokens
        self._model = model
        self._buffer = model.new_buffer(_FIRST + _NUM_ROWS + _NUM_SPARE_ROWS)
        self._buffer.planes[:] = 0  # even a hidden NaN gives NaN
        self.capacity = _NUM_ROWS

    def grow(self, num_rows: int) -> None:
        """Increases the capacity to at least `num_rows`. Raises OverloadedError, with the store unchanged."""
        self._reserve(_FIRST + num_rows + _NUM_SPARE_ROWS)
        self.capacity = max(self.capacity, num_rows)

    def forward(
        self,
        token_ids: Sequence[int],
        rows: Sequence[int],
        depths: Sequence[int],
        visible: npt.NDArray[np.bool_],
        wanted: Sequence[int],
    ) -> npt.NDArray[np.float32]:
        """Forwards tokens in one pass, as `RowStore.forward` says."""
        num_new = len(token_ids)
        places = np.array(rows) + _FIRST
        sees_written = visible[:, rows]  # whether a token sees the row of another new one
        sees_new = sees_written & np.tri(num_new, dtype=np.bool_)
        is_needed = (sees_written & ~sees_new).any(axis=0)  # by those before it, as it was stored
        num_past = _FIRST + _count_past(visible.shape[1], places[~is_needed] - _FIRST)
        self._reserve(num_past + num_new + 1)
        bias = _build_bias(places, visible, sees_new, num_past)
        logits = self._model.run(self._buffer, num_past, token_ids, depths, wanted, bias)
        if places[0] != num_past or np.any(np.diff(places) != 1):
            planes = self._buffer.planes
            planes[:, :, places] = planes[:, :, num_past : num_past + num_new].copy()
        return logits

    def _reserve(self, num_places: int) -> None:
        num_used = self._buffer.capacity
        if num_places > num_used:
            self._buffer.grow(num_places, num_used)
            self._buffer.planes[:, :, num_used:] = 0


def _count_past(num_columns: int, unneeded: npt.NDArray[np.int64]) -> int:
    """The number of the store's first rows, up to the last one that is needed."""
    rows = set(unneeded.tolist())
    while num_columns and num_columns - 1 in rows:
        num_columns -= 1
    return num_columns


def _build_bias(
    places: npt.NDArray[np.int64], visible: npt.NDArray[np.bool_], sees_new: npt.NDArray[np.bool_], num_past: int
) -> npt.NDArray[np.float32]:
    """What hides the stored rows and the new ones, [num_new, num_past + num_new].

    A row that is written in this pass is seen where it is new, by those after it. Those before it see what is stored.
    """
    sees_past = np.zeros((len(places), num_past), np.bool_)
    sees_past[:, _FIRST:] = visible[:, : num_past - _FIRST]
    is_past = places < num_past
    sees_past[:, places[is_past]] &= ~sees_new[:, is_past]
    bias: npt.NDArray[np.float32] = (~np.concatenate([sees_past, sees_new], axis=1)).astype(np.float32)
    bias *= HIDDEN
    return bias
