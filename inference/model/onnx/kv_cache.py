"""The keys and values of one sequence, in memory that onnxruntime reads and writes in place."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from inference.errors import OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.onnx.decoder_config import DecoderConfig
from inference.model.onnx.session import InferenceSession

_NUM_PADDING_ROWS = 1  # a single row is run with one more beside it

TokenKV = npt.NDArray[np.float32]  # [2 * num_layers, num_kv_heads, head_dim]: one token's keys and values


class OnnxSequenceCache:
    """The keys and values of the kept tokens, followed by those of the last forwarded tree's chain and branches.

    They are a row for each token, bound to inputs and outputs of a session.
    """

    planes: npt.NDArray[np.float32]  # [2 * num_layers, num_kv_heads, num_rows, head_dim]: keys, values of each layer

    def __init__(self, session: InferenceSession, config: DecoderConfig, num_tokens: int) -> None:
        """Allocates room for `num_tokens`, and for some that follow later. Raises OverloadedError."""
        self._session = session
        self._config = config
        self.binding: Any = session.io_binding()  # onnxruntime has no types
        self.num_tokens = 0
        self._bind_planes(self._allocate(num_tokens + _NUM_PADDING_ROWS))

    @property
    def capacity(self) -> int:
        """The number of tokens that it has room for."""
        return self.planes.shape[2] - _NUM_PADDING_ROWS

    @property
    def nbytes(self) -> int:
        """The memory of the keys and values."""
        return self.planes.nbytes

    def bind_input(self, name: str, array: npt.NDArray[Any]) -> None:
        """Lets the session read an input from this memory, which must exist until the run ends."""
        self.binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def bind_output(self, name: str, array: npt.NDArray[Any]) -> None:
        """Lets the session write an output into this memory, which must exist until the run ends."""
        self.binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def reserve(self, num_new: int) -> None:
        """Makes room for `num_new` rows after the kept ones. Raises OverloadedError, with the cache unchanged."""
        needed = self.num_tokens + num_new + _NUM_PADDING_ROWS
        if needed > self.planes.shape[2]:
            planes = self._allocate(needed)
            planes[:, :, : self.num_tokens] = self.planes[:, :, : self.num_tokens]
            self._bind_planes(planes)

    def keep(self, tree: TokenTree) -> None:
        """Keeps the chain of the last forwarded tree; discards the branches."""
        self.num_tokens += len(tree.chain_ids)

    def copy_branches(self, tree: TokenTree) -> list[TokenKV]:
        """Copies of the keys and values of the last forwarded tree's branches. Call this before `keep`."""
        first = self.num_tokens + len(tree.chain_ids)
        return [self.planes[:, :, first + branch].copy() for branch in range(len(tree.branch_ids))]

    def copy_tokens(self, start: int) -> list[TokenKV]:
        """Copies of the keys and values of the kept tokens from `start` on."""
        return [self.planes[:, :, place].copy() for place in range(start, self.num_tokens)]

    def append(self, rows: Sequence[TokenKV]) -> None:
        """Keeps stored rows as further tokens. Raises OverloadedError, with the cache unchanged."""
        self.reserve(len(rows))
        self.write_rows(rows)
        self.num_tokens += len(rows)

    def write_rows(self, rows: Sequence[TokenKV]) -> None:
        """Writes stored rows after the kept tokens, without keeping them. Call `reserve` first."""
        for place, row in enumerate(rows, self.num_tokens):
            self.planes[:, :, place] = row

    def cut(self, num_tokens: int) -> None:
        """Forgets the kept tokens beyond the first `num_tokens`."""
        self.num_tokens = min(self.num_tokens, num_tokens)

    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> Self:
        """An independent copy, of the first `num_tokens` only if given, with room for `capacity` tokens.

        Raises OverloadedError.
        """
        num_kept = self.num_tokens if num_tokens is None else min(num_tokens, self.num_tokens)
        other = type(self)(self._session, self._config, max(num_kept, capacity))
        other.planes[:, :, :num_kept] = self.planes[:, :, :num_kept]
        other.num_tokens = num_kept
        return other

    def _allocate(self, num_rows: int) -> npt.NDArray[np.float32]:
        """Memory for so many rows and half as many later ones.

        Once it is full, all are copied, which takes as long as a key.
        """
        config, capacity = self._config, num_rows + num_rows // 2
        try:
            return np.empty((2 * config.num_layers, config.num_kv_heads, capacity, config.head_dim), np.float32)
        except MemoryError as error:
            raise OverloadedError(
                f"there is no memory left for the keys and values of {capacity} tokens; try again in a moment"
            ) from error

    def _bind_planes(self, planes: npt.NDArray[np.float32]) -> None:
        self.planes = planes
        for number, plane in enumerate(planes[:, None]):
            self.bind_input(f"past_{number}", plane)
            self.bind_output(f"present_{number}", plane)
