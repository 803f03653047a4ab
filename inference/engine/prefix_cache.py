"""The prefix cache: the sequences that were prefilled last, for the requests that begin like them.

A sequence is found by its tokens: the longest common beginning with a request's context, among those of the same
tenant. The request that comes first takes the sequence and cuts it back to what they share. While it is in use, or if
most of it would be lost, another request copies the common part. A new sequence and a copy have the room that the
request needs; one that is taken over has at most twice as much, else it is copied too. The memory of idle sequences and
of the logits of those in use is bounded by bytes. What was used longest ago is dropped, the logits of a sequence before
the sequence itself. Evicting the logits of all sequences before any sequence would discard, for every user, the text
that was generated at the last keystroke, which they usually type next.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inference.errors import OverloadedError
from inference.model.language_model import SequenceCache
from inference.model.token_sequence import TokenSequence

_MIN_COMMON_TOKENS = 8  # sharing fewer is worth no copy
_MAX_SPARE_FACTOR = 2  # of the room that a request needs: caches that grow double their room


@dataclass(slots=True, eq=False)
class _Entry:
    tenant: str
    sequence: TokenSequence
    nbytes: int = 0
    is_in_use: bool = True


class PrefixCache:
    """The sequences in use, and as many idle ones as fit into `max_bytes`. Used by the engine's thread only."""

    def __init__(self, new_cache: Callable[[int], SequenceCache], max_bytes: int) -> None:
        self._new_cache = new_cache
        self._max_bytes = max_bytes
        self._entries: list[_Entry] = []  # least recently used first
        self.num_bytes = {"idle": 0, "logits": 0}  # of idle sequences, and of the logits of those in use

    def acquire(self, tenant: str, context_ids: Sequence[int], num_tokens: int) -> TokenSequence:
        """Returns a sequence that begins like the context, perhaps an empty one with room for `num_tokens`.

        The caller owns it until `release`. Raises OverloadedError.
        """
        try:
            return self._acquire(tenant, context_ids, num_tokens)
        except OverloadedError:
            if not self.clear():
                raise
            return self._acquire(tenant, context_ids, num_tokens)

    def count_cached(self, tenant: str, context_ids: Sequence[int]) -> int:
        """How many of the first tokens of a context are cached."""
        return self._find(tenant, context_ids)[1]

    def release(self, sequence: TokenSequence) -> None:
        """Ends the use of a sequence, which stays cached."""
        [entry] = [entry for entry in self._entries if entry.sequence is sequence]
        self._entries.remove(entry)
        entry.is_in_use = False
        entry.nbytes = sequence.nbytes
        self._entries.append(entry)
        self.shrink()

    def clear(self) -> bool:
        """Drops all sequences that no request uses. Returns whether there were any."""
        num_before = len(self._entries)
        self._entries = [entry for entry in self._entries if entry.is_in_use]
        return len(self._entries) < num_before

    def _acquire(self, tenant: str, context_ids: Sequence[int], num_tokens: int) -> TokenSequence:
        found, num_common = self._find(tenant, context_ids)
        if found is None:
            entry = _Entry(tenant, TokenSequence(self._new_cache(num_tokens)))
        elif (
            found.is_in_use
            or 2 * num_common < found.sequence.num_tokens  # most of the sequence would be lost
            or found.sequence.cache.capacity > _MAX_SPARE_FACTOR * num_tokens  # most of its room would be unused
        ):
            entry = _Entry(tenant, found.sequence.fork(num_common, num_tokens))
        else:
            entry = found
            self._entries.remove(found)
            found.is_in_use = True
            found.sequence.room = num_tokens
        self._entries.append(entry)
        return entry.sequence

    def _find(self, tenant: str, context_ids: Sequence[int]) -> tuple[_Entry | None, int]:
        """The entry with the longest common beginning; of equals an idle one, then the latest."""
        wanted = list(context_ids)
        first = wanted[:_MIN_COMMON_TOKENS]
        best, best_key = None, (_MIN_COMMON_TOKENS, False)
        for entry in self._entries:
            if entry.tenant == tenant and entry.sequence.token_ids[:_MIN_COMMON_TOKENS] == first:
                key = (entry.sequence.count_common(wanted), not entry.is_in_use)
                if key >= best_key:
                    best, best_key = entry, key
        return best, 0 if best is None else best_key[0]

    def shrink(self) -> None:
        """Drops the logits of the oldest sequence, then itself, then the next oldest, until the limit holds."""
        idle = [entry for entry in self._entries if not entry.is_in_use]
        running = sum(entry.sequence.num_row_bytes for entry in self._entries if entry.is_in_use)
        self.num_bytes = {"idle": sum(entry.nbytes for entry in idle), "logits": running}
        num_excess = sum(self.num_bytes.values()) - self._max_bytes
        for entry in idle:
            if num_excess > 0:
                entry.sequence.drop_rows()
                num_excess -= entry.nbytes - entry.sequence.nbytes
                entry.nbytes = entry.sequence.nbytes
            if num_excess > 0:
                self._entries.remove(entry)
                num_excess -= entry.nbytes
