"""A cache of allowed sets: those of hot prefixes, built at load, and those that were asked for lately."""

from collections import OrderedDict

from trie_cache.masks import AllowedSet, build_allowed_set
from trie_cache.trie import Trie

# The blog post's bound. Below it a set takes some 6 µs to build; 51 prefixes of a 151,643-token vocabulary are above.
_MIN_HOT_TOKENS = 1001
_MAX_RECENT = 256  # at most 5 MB of masks at 151,643 tokens, if a mask is asked for each time


class HotPrefixCache:
    """The allowed set of any prefix. For one thread at a time.

    The sets of prefixes that more than 1,000 tokens start with are built here, masks included, and kept for good. Of
    the others the last 256 that were asked for are kept.
    """

    def __init__(self, trie: Trie, min_hot_tokens: int = _MIN_HOT_TOKENS, max_recent: int = _MAX_RECENT) -> None:
        self.num_hits = 0  # answered from what was there
        self.num_misses = 0  # had to be built
        self._trie = trie
        self._max_recent = max_recent
        hot_prefixes = [b"", *(prefix for prefix, _ in trie.iter_prefixes(min_hot_tokens))]
        self._hot = {prefix: _build_with_mask(trie, prefix) for prefix in hot_prefixes}
        self._recent: OrderedDict[bytes, AllowedSet] = OrderedDict()  # the longest unused first

    @property
    def num_hot(self) -> int:
        """How many prefixes were built at load and stay."""
        return len(self._hot)

    def allowed(self, prefix: bytes) -> AllowedSet:
        """The tokens that may come next while `prefix` has yet to be spelled: see `build_allowed_set`."""
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
    allowed.mask  # noqa: B018  # a cached property: from here on it is built
    return allowed
