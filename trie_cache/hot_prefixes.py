"""The tokens that may come next while bytes remain to be spelled, and a cache of them.

The strategy `greedy` needs such a set at each step, and copying a long interval with the ids beside it is slow. On a
GPU the interval and the few ids suffice, because ranks are compared there: `lo <= rank[token] < hi`.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from trie_cache.trie import Trie

_Ids = npt.NDArray[np.int32]  # [num_allowed] in the order of their bytes; read-only

# The blog post's bound. A smaller set takes about 6 µs to build. Of a 151,643-token vocabulary, 51 prefixes reach it.
_MIN_HOT_TOKENS = 1001
_MAX_RECENT = 256  # at most 1 MB: a set that is not hot has at most 1,000 ids, and one for each byte of the prefix


def find_allowed_ids(trie: Trie, prefix: bytes) -> _Ids:
    """The tokens that start with a prefix, and those that the prefix starts with (the blog post's rule).

    For `b""`, these are all ordinary tokens. Special tokens are never among them.
    """
    (lo, hi), ancestor_ids = trie.find_interval(prefix), trie.find_ancestors(prefix)
    ids: _Ids = np.concatenate((np.array(ancestor_ids, np.int32), trie.order[lo:hi]))
    ids.flags.writeable = False
    return ids


class HotPrefixCache:
    """The allowed tokens of any prefix. Not thread-safe.

    A prefix that more than 1,000 tokens start with is hot: its set is built by the constructor and never evicted. Of
    the other sets, the 256 most recently used are cached.
    """

    def __init__(self, trie: Trie, min_hot_tokens: int = _MIN_HOT_TOKENS, max_recent: int = _MAX_RECENT) -> None:
        hot_prefixes = [b"", *(prefix for prefix, _ in trie.iter_prefixes(min_hot_tokens))]
        self._hot = {prefix: find_allowed_ids(trie, prefix) for prefix in hot_prefixes}
        self._find_recent = lru_cache(max_recent)(lambda prefix: find_allowed_ids(trie, prefix))

    def find(self, prefix: bytes) -> _Ids:
        """The tokens that may come next while `prefix` remains to be spelled."""
        hot = self._hot.get(prefix)
        return self._find_recent(prefix) if hot is None else hot
