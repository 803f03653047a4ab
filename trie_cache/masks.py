"""The tokens that may come next, as what an engine can use: their ids, and one bit per row of the model's head.

Engines that can compare ranks on the device need neither: `lo <= rank[token] < hi` says the same.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trie_cache.trie import Trie

_BITS = 32


@dataclass(frozen=True, slots=True)
class AllowedSet:
    """The tokens that may come next. Both arrays are read-only and say the same."""

    ids: npt.NDArray[np.int32]  # [num_allowed], in the order of the tokens' bytes
    mask: npt.NDArray[np.int32]  # [ceil(num_rows / 32)]; bit `id % 32`, lowest first, of word `id // 32`


def build_allowed_set(trie: Trie, prefix: bytes) -> AllowedSet:
    """The tokens that start with `prefix`, and those that `prefix` starts with (the blog post's rule).

    For `b""` these are all ordinary tokens. Special tokens are never among them: where no prefix is left there is
    nothing to hold to, and whoever wants them back leaves the mask away.
    """
    lo, hi = trie.find_interval(prefix)
    ancestors = trie.find_ancestors(prefix)
    ids = trie.order[lo:hi]
    if ancestors:
        ids = np.concatenate((np.array(ancestors, np.int32), ids))
        ids.flags.writeable = False
    return AllowedSet(ids, _build_mask(ids, trie.num_rows))


def _build_mask(ids: npt.NDArray[np.int32], num_rows: int) -> npt.NDArray[np.int32]:
    """Through a row of bytes: 7 µs for one id or a thousand, 80 µs for 53,000. Bit by bit saves 2 µs up to 300 ids."""
    row = np.zeros(-(-num_rows // _BITS) * _BITS, np.bool_)
    row[ids] = True
    mask = np.packbits(row, bitorder="little").view("<i4")
    mask.flags.writeable = False
    return mask
