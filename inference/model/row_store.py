"""The character-level model's interface to a model: rows of many token strings, forwarded together. Without torch."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt


class RowStore(Protocol):
    """The keys and values of many token strings that share their beginnings, one row for each token.

    The caller chooses the rows for new tokens, and may reuse rows that no string needs any more.
    """

    max_tokens: int  # the most tokens of one string

    @property
    def capacity(self) -> int:
        """The number of rows."""
        ...

    def grow(self, num_rows: int) -> None:
        """Increases the capacity to at least `num_rows`. Raises OverloadedError, with the store unchanged."""
        ...

    def forward(
        self,
        token_ids: Sequence[int],
        rows: Sequence[int],
        depths: Sequence[int],
        visible: npt.NDArray[np.bool_],
        wanted: Sequence[int],
    ) -> npt.NDArray[np.float32]:
        """Forwards tokens, those of a string in their order, and writes their keys and values to `rows`.

        `depths`: each token's position in its string. `visible`: [num_tokens, num_used] bool, the rows that each token
        sees, among them its own; all rows from `num_used` on are free, and may be overwritten. A token may be forwarded
        again to the row that it has.

        Returns the next-token logits after the tokens at the indices `wanted`, [num_wanted, vocab_size]. Raises
        OverloadedError or ModelError.
        """
        ...
