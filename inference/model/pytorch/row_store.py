"""A `RowStore` on torch."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from inference.model.pytorch.runner import Runner


class TorchRowStore:
    """A `RowStore` on one torch device."""

    def __init__(self, runner: Runner) -> None:
        """Allocates some rows. Raises OverloadedError."""
        self.max_tokens = runner.max_tokens
        self._runner = runner
        self._rows = runner.new_row_store()

    @property
    def capacity(self) -> int:
        """The number of rows."""
        return self._rows.capacity

    def grow(self, num_rows: int) -> None:
        """Increases the capacity to at least `num_rows`. Raises OverloadedError, with the store unchanged."""
        self._rows.grow(num_rows)

    def forward(
        self,
        token_ids: Sequence[int],
        rows: Sequence[int],
        depths: Sequence[int],
        visible: npt.NDArray[np.bool_],
        wanted: Sequence[int],
    ) -> npt.NDArray[np.float32]:
        """Forwards tokens in one pass, as `RowStore.forward` says."""
        segment = self._rows.build_segment(rows, depths, torch.from_numpy(visible))
        logits: npt.NDArray[np.float32] = self._runner.forward_segment(token_ids, segment, wanted).cpu().numpy()
        return logits
