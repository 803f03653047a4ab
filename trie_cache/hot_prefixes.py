"""A cache of allowed sets: those of the hot prefixes, built when the model is loaded, and the recently used ones."""

from collections import OrderedDict

from trie_cache.masks import AllowedSet, build_allowed_set
from trie_cache.trie import Trie

# The blog post's bound. A smaller set takes about 6 µs to build. Of a 151,643-token vocabulary, 51 prefixes reach it.
_MIN_HOT_TOKENS = 1001
_MAX_RECENT = 256  # at most 5 MB at 151,643 tokens, if the mask of each is built


class HotPrefixCache:
    """The allowed set of any prefix. Not thread-safe.

    A prefix that more than 1,000 tokens start with is hot: its set and its mask are built by the constructor and never
    evicted. Of the other sets, the 256 most recently used are cached.
    """

    def __init__(self, trie: Trie, min_hot_tokens: int = _MIN_HOT_TOKENS, max_recent: int = _MAX_RECENT) -> None:
        self.num_hits = 0  # lookups answered from the cache
        self.num_misses = 0  # lookups that built a set
        self._trie = trie
        self._max_recent = max_recent
        hot_prefixes = [b"", *(prefix for prefix, _ in trie.iter_prefixes(min_hot_tokens))]
        self._hot = {prefix: _build_with_mask(trie, prefix) for prefix in hot_prefixes}
        self._recent: OrderedDict[bytes, AllowedSet] = OrderedDict()  # least recently used first

    @property
    def num_hot(self) -> int:
        """The number of hot prefixes."""
        return len(self._hot)

    def allowed(self, prefix: bytes) -> AllowedSet:
        """The tokens that may come next while `prefix` remains to be spelled: see `build_allowed_set`."""
        found = self._hot.get(prefix)
        if found is None and (found := self._recent.get(prefix)) is not None:
            self._recent.move_to_end(prefix)
        if found is not None:
            self.num_hits += 1
            return found
        self.num_misses += 1
        built = self._recent[prefix] = build_allowed_set(self._trie, prefix)
        if len(self._recent) > self._max_recent:
            self._recent.popitem(last=False)
        return built


def _build_with_mask(trie: Trie, prefix: bytes) -> AllowedSet:
    allowed = build_allowed_set(trie, prefix)
    allowed.mask  # noqa: B018  # a cached property: this builds it
    return allowed
