"""The tokens that may come next, as token ids and as a mask of one bit for each row of the model's head.

An engine that can compare ranks on the device needs neither: `lo <= rank[token] < hi` is equivalent.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from trie_cache.trie import Trie

_BITS = 32


class AllowedSet:
    """The tokens that may come next, as ids and as a mask. Both arrays are read-only."""

    def __init__(self, ids: npt.NDArray[np.int32], num_rows: int) -> None:
        """Use `build_allowed_set`. `num_rows`: the rows of the model's head."""
        self.ids = ids  # [num_allowed], in the order of the tokens' bytes
        self._num_rows = num_rows

    @cached_property
    def mask(self) -> npt.NDArray[np.int32]:
        """[ceil(num_rows / 32)]; token `id` is bit `id % 32`, lowest first, of word `id // 32`. Built on first use."""
        return _build_mask(self.ids, self._num_rows)


def build_allowed_set(trie: Trie, prefix: bytes) -> AllowedSet:
    """The tokens that start with `prefix`, and those that `prefix` starts with (the blog post's rule).

    For `b""` these are all ordinary tokens. The set never contains special tokens. Once no prefix remains to be
    spelled, every token is allowed: an engine that wants special tokens then uses no mask.
    """
    lo, hi = trie.find_interval(prefix)
    ancestors = trie.find_ancestors(prefix)
    ids = trie.order[lo:hi]
    if ancestors:
        ids = np.concatenate((np.array(ancestors, np.int32), ids))
        ids.flags.writeable = False
    return AllowedSet(ids, trie.num_rows)


def _build_mask(ids: npt.NDArray[np.int32], num_rows: int) -> npt.NDArray[np.int32]:
    """Packs a byte per row into bits: 7 µs for up to 1,000 ids, 80 µs for 53,000. Setting bits saves 2 µs up to 300."""
    row = np.zeros(-(-num_rows // _BITS) * _BITS, np.bool_)
    row[ids] = True
    mask = np.packbits(row, bitorder="little").view("<i4")
    mask.flags.writeable = False
    return mask
