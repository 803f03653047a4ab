"""A decoder on onnxruntime, without torch: token trees in, next-token logits out, and the choice among them.

Each sequence has a run of its own, so that what it gets does not depend on its neighbours. Products and attention
process rows in tiles; a remainder row uses another kernel, whose result differs in the last bits.
Therefore an odd number of rows is run with one more, whose results are not used: a token gets the same bits, however
its text is divided into passes. That costs little: of the time of a few rows, most is spent on reading the weights.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from inference.errors import InvalidRequestError, OverloadedError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import ContiguousKVCache, LanguageModel, SequencePart
from inference.model.onnx.decoder_config import DecoderConfig
from inference.model.onnx.graph import HIDDEN
from inference.model.onnx.session import InferenceSession
from inference.model.sampler import NumpyRow, NumpyTokens

_MIN_TABLE = 1024  # positions
_MAX_BIAS = 1 << 22  # numbers of a bias (16 MiB); long contexts are read in pieces that need no more
_MEMORY_SIGNS = ("bad allocation", "bad_alloc", "Failed to allocate")  # in messages of onnxruntime
_NUM_PADDING_ROWS = 1  # a single row is run with one more beside it

Logits = npt.NDArray[np.float32]  # [num_rows, vocab_size]
Bias = npt.NDArray[np.float32]  # [num_rows, num_keys], see `inference.model.onnx.graph`
TokenKV = npt.NDArray[np.float32]  # [2 * num_layers, num_kv_heads, head_dim]: one token's keys and values


class OnnxSequenceCache(ContiguousKVCache):
    """Rows that are bound to inputs and outputs of a session."""

    planes: npt.NDArray[np.float32]  # [2 * num_layers, num_kv_heads, num_rows, head_dim]: keys, values of each layer

    def __init__(self, session: InferenceSession, config: DecoderConfig, num_tokens: int) -> None:
        """Allocates room for `num_tokens`, and for some that follow later. Raises OverloadedError."""
        self._session = session
        self._config = config
        self.binding: Any = session.io_binding()  # onnxruntime has no types
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

    def copy_kv(self, start: int, stop: int) -> list[TokenKV]:
        """See `ContiguousKVCache`."""
        return [self.planes[:, :, place].copy() for place in range(start, stop)]

    def write_kv(self, stored: Sequence[TokenKV]) -> None:
        """See `ContiguousKVCache`."""
        for place, each in enumerate(stored, self.num_tokens):
            self.planes[:, :, place] = each

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


class OnnxModel(LanguageModel):
    """A `LanguageModel` on the CPU. Each sequence is run by itself, so it does not depend on its neighbours.

    One thread at a time may use it.
    """

    runs_together = False
    token_cost = 0.1

    def __init__(self, session: InferenceSession, config: DecoderConfig, tokens: NumpyTokens) -> None:
        self._tokens = tokens
        self._session = session
        self._zeros = np.zeros(_MAX_BIAS, np.float32)  # a bias under which rows see all before them
        self._tables = config.rotary.build_tables(_MIN_TABLE)
        self.config = config
        self.max_tokens = config.max_tokens

    def new_cache(self, num_tokens: int = 256) -> OnnxSequenceCache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        return OnnxSequenceCache(self._session, self.config, num_tokens)

    def forward(self, parts: Sequence[SequencePart]) -> list[list[NumpyRow]]:
        """Forwards the parts one after the other. Returns the rows of each part that wants them.

        Raises OverloadedError or ModelError; the caches then have the tokens that they had.
        """
        for part in parts:
            part.cache.reserve(part.tree.num_tokens)
        return [self._tokens.build_rows(self._forward_part(part)) for part in parts]

    def _forward_part(self, part: SequencePart) -> Logits:
        """The logits after the nodes of a part, in one run, or in several if the bias of one would be large."""
        cache, tree, num_stored = part.cache, part.tree, len(part.stored)
        assert isinstance(cache, OnnxSequenceCache), "every cache comes from new_cache"
        cache.write_kv(part.stored)
        token_ids = [*tree.chain_ids, *tree.branch_ids[num_stored:]]
        positions = tree.find_positions(cache.num_tokens)[num_stored:]
        if positions and max(positions) >= self.max_tokens:
            raise InvalidRequestError(
                f"a sequence of {max(positions) + 1} tokens is longer than the {self.max_tokens} tokens of the model"
            )
        first_wanted = max(len(tree.chain_ids) - 1, 0) if part.wants_logits else len(token_ids)
        found = [np.empty((0, self.config.vocab_size), np.float32)]
        for rows in _divide(tree, cache.num_tokens, num_stored):
            num_past = cache.num_tokens + num_stored + rows.start
            wanted = [row - rows.start for row in rows if row >= first_wanted]
            bias = _build_bias(tree, cache.num_tokens, num_stored + rows.start, len(rows))
            own = slice(rows.start, rows.stop)
            found.append(self._run(cache, num_past, token_ids[own], positions[own], wanted, bias))
        return np.concatenate(found)

    def _run(
        self,
        cache: OnnxSequenceCache,
        num_past: int,
        token_ids: Sequence[int],
        positions: Sequence[int],
        wanted_rows: Sequence[int],
        bias: Bias | None,
    ) -> Logits:
        """Forwards new rows after the first `num_past` of the cache, and writes their keys and values there.

        The cache needs room for one row more than the new ones. A row sees all rows before it, or what `bias` leaves
        of them. With an empty past, onnxruntime takes 0, 1, 2 and so on for the positions.

        Returns the next-token logits after the wanted rows, [num_wanted, vocab_size].
        """
        ids = np.array([_pad(token_ids)], np.int64)  # [1, num_rows or one more]
        num_rows, num_keys = ids.shape[1], num_past + ids.shape[1]
        if bias is None:
            bias = self._zeros[: num_rows * num_keys].reshape(num_rows, num_keys)
        elif num_rows > len(token_ids):
            bias = np.pad(bias, ((0, 1), (0, 1)))
        logits = np.empty((1, len(_pad(wanted_rows)), self.config.vocab_size), np.float32)
        cosines, sines = self._ensure_tables(num_keys)
        inputs: dict[str, npt.NDArray[Any]] = {
            "token_ids": ids,
            "positions": np.array([_pad(positions)], np.int64),
            "wanted_rows": np.array(_pad(wanted_rows), np.int64),
            "bias": bias[None, None],
            "last_key": np.array([num_keys - 1], np.int32),
            "num_keys": np.array(num_keys, np.int32),
            "cosines": cosines,
            "sines": sines,
        }
        for name, array in inputs.items():
            cache.bind_input(name, array)
        cache.bind_output("logits", logits)
        self._run_session(cache.binding, len(token_ids))
        return logits[0, : len(wanted_rows)]

    def _ensure_tables(self, num_keys: int) -> tuple[Logits, Logits]:
        """Cosines and sines of at least as many positions as there are keys, which onnxruntime wants."""
        num_positions = len(self._tables[0])
        if num_positions < num_keys:
            self._tables = self.config.rotary.build_tables(max(num_keys, 2 * num_positions))
        return self._tables

    def _run_session(self, binding: Any, num_rows: int) -> None:
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:  # onnxruntime has an exception for each of its codes, and documents none
            if not any(sign in str(error) for sign in _MEMORY_SIGNS):
                raise
            raise OverloadedError(
                f"there is no memory left for a forward pass over {num_rows} tokens; try again in a moment"
            ) from error


def _pad(values: Sequence[int]) -> list[int]:
    """The values, and the last one once more if their number is odd."""
    return [*values, values[-1]] if len(values) % 2 else [*values]


def _divide(tree: TokenTree, num_kept: int, num_stored: int) -> list[range]:
    """The tree's new rows, in pieces that are run one after the other."""
    num_chain, num_new = len(tree.chain_ids), tree.num_tokens - num_stored
    size = max(_MAX_BIAS // (num_kept + tree.num_tokens + 1) // 2, 1) * 2  # with the row that an odd number gets
    if _is_path(tree) or (num_new <= size and num_kept):
        return _cut(num_new, size)
    return [*_cut(num_chain, size), range(num_chain, num_new)]  # without a past, the positions must be 0, 1, 2 ...


def _cut(num_rows: int, size: int) -> list[range]:
    return [range(start, min(start + size, num_rows)) for start in range(0, num_rows, size)]


def _is_path(tree: TokenTree) -> bool:
    return all(parent == (branch - 1 if branch else None) for branch, parent in enumerate(tree.parents))


def _build_bias(tree: TokenTree, num_kept: int, start: int, num_rows: int) -> Bias | None:
    """The bias of `num_rows` of the tree's rows from `start` on, which hides other branches; None if there are none."""
    num_chain = len(tree.chain_ids)
    if _is_path(tree) or start + num_rows <= num_chain:
        return None
    first = num_kept + num_chain  # column of the first branch
    bias = np.zeros((num_rows, first + len(tree.branch_ids)), np.float32)
    first_branch = max(start - num_chain, 0)
    is_seen = tree.with_chain(()).build_mask()[first_branch:]
    bias[num_chain + first_branch - start :, first:] = np.where(is_seen, 0, HIDDEN)
    return bias
