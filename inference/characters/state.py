"""The state of a character-level model after some bytes: the covering of the text, as bundles.

A bundle is a token string, and the next tokens that agree with the bytes after it (Vieira et al. 2025, appendix D).
Naive form: store each next token with its probability in a trie, and walk down one byte at a time.

1. The vocabulary is sorted by bytes, so the tokens that agree are one slice of the model's row. One more byte narrows
   the slice; nothing is built.
2. The tokens that continue with each next byte are slices of this slice. Each slice is summed separately, relative to
   its maximum. (Differences of one running sum lose all digits on rare prefixes.)
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inference.characters.token_string import Floats, TokenReader, TokenString, find_common_beginning
from inference.model.sampler import log_sum_exp
from trie_cache.trie import Children, Interval, Trie

END = 256  # the index of the end of the text, after the 256 bytes
NUM_OUTCOMES = 257  # one more byte, or the end of the text
MAX_BYTES_AT_ONCE = 64  # known bytes that a covering may read in one forward pass; each may need several rows


class Bundle:
    """The token strings of a covering that share all but their last token. Immutable."""

    def __init__(
        self, trie: Trie, string: TokenString, remaining_bytes: bytes, interval: Interval, log_probs: Floats
    ) -> None:
        """`log_probs`: of the tokens in `interval`, by rank. `open` makes the first bundle of a string."""
        self.string = string
        self.remaining_bytes = remaining_bytes  # the part of the text after `string`: the next token begins with it
        self.log_end = string.log_end if not remaining_bytes else -np.inf
        self._trie = trie
        self._interval = interval
        self._log_probs = log_probs

    @classmethod
    def open(cls, trie: Trie, string: TokenString, remaining_bytes: bytes = b"") -> "Bundle":
        """The first bundle of a string that has just been read. The string's row moves into the bundle."""
        assert string.log_probs is not None, "strings are read before they are opened"
        row, string.log_probs = string.log_probs, None
        if not remaining_bytes:
            return cls(trie, string, remaining_bytes, Interval(0, trie.num_tokens), row)
        interval = trie.find_interval(remaining_bytes)
        return cls(trie, string, remaining_bytes, interval, row[interval.lo : interval.hi].copy())

    @property
    def nbytes(self) -> int:
        """The memory of its part of a row."""
        return self._log_probs.nbytes

    @property
    def log_mass(self) -> float:
        """The mass of `string` with any continuation."""
        return self.string.get_log_mass()

    @cached_property
    def log_interval_mass(self) -> float:
        """Like `log_ahead`, including the tokens that are equal to `remaining_bytes`."""
        return self.log_mass + float(np.logaddexp(log_sum_exp(self._log_probs), self.log_end))

    @cached_property
    def log_ahead(self) -> float:
        """The mass of the tokens that go beyond `remaining_bytes`; if that is empty, including the end of the text."""
        log_ahead = log_sum_exp(self._log_probs[self.children.num_exact :])
        return self.log_mass + float(np.logaddexp(log_ahead, self.log_end))

    @cached_property
    def children(self) -> Children:
        """The bytes that may come next, and the tokens that continue with each."""
        return self._trie.find_children(self._interval, len(self.remaining_bytes))

    @cached_property
    def log_masses(self) -> npt.NDArray[np.float64]:
        """[num_children]: the mass of the tokens that continue with each of the children's bytes."""
        ended = self.children.num_exact
        if ended == len(self._log_probs):
            return np.empty(0)
        return self.log_mass + sum_slices(self._log_probs[ended:], self.children.starts - ended)

    def find_exact(self) -> list[tuple[int, float]]:
        """The ids of the tokens that are equal to `remaining_bytes`, each with its log probability after `string`."""
        lo = self._interval.lo
        return [(int(self._trie.order[lo + i]), float(self._log_probs[i])) for i in range(self.children.num_exact)]

    def find_most_likely(self, limit: int) -> list[tuple[float, TokenString, int]]:
        """The most likely strings: mass, string, and how many bytes it goes beyond `remaining_bytes`.

        If `remaining_bytes` is empty, this is `string` alone, with any continuation.
        """
        if not self.remaining_bytes:
            return [(self.log_mass, self.string, 0)]
        ahead = self._log_probs[self.children.num_exact :]
        best = np.argsort(-ahead)[:limit]
        return [(self.log_mass + float(ahead[index]), *self._extend(int(index))) for index in best]

    def _extend(self, index: int) -> tuple[TokenString, int]:
        """The string and the token with this index among those that go beyond `remaining_bytes`."""
        token_id = int(self._trie.order[self._interval.lo + self.children.num_exact + index])
        return self.string.extend([token_id]), len(self._trie.spell(token_id)) - len(self.remaining_bytes)

    def narrow(self, byte: int) -> "Bundle | None":
        """The bundle with one more remaining byte; None if no token continues with it."""
        children = self.children
        index = int(np.searchsorted(children.bytes, byte))
        if index == len(children.bytes) or children.bytes[index] != byte:
            return None
        start, stop = [*children.starts[index : index + 2].tolist(), len(self._log_probs)][:2]
        interval = Interval(self._interval.lo + start, self._interval.lo + stop)
        own = self._log_probs[start:stop].copy()  # a view would keep the whole row
        return Bundle(self._trie, self.string, self.remaining_bytes + bytes([byte]), interval, own)

    def move(self, string: TokenString) -> "Bundle":
        """The same bundle with another string."""
        return Bundle(self._trie, string, self.remaining_bytes, self._interval, self._log_probs)


def sum_slices(values: Floats, starts: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    """[num_slices]: log(sum(exp(values))) of each slice, from its start to the next start. No slice is empty."""
    peaks = np.maximum.reduceat(values, starts)
    peaks[np.isneginf(peaks)] = 0
    lengths = np.diff(starts, append=len(values))
    with np.errstate(divide="ignore"):  # all tokens of a slice may be impossible
        sums = np.add.reduceat(np.exp(values - np.repeat(peaks, lengths)), starts, dtype=np.float64)
        masses: npt.NDArray[np.float64] = np.log(sums) + peaks
    return masses


@dataclass(frozen=True, slots=True)
class OpenText:
    """The text so far: stable tokens and the bytes after them."""

    base: TokenString  # the stable tokens: no continuation can change them
    tail: bytes  # the text after them

    def extend(self, byte: int) -> "OpenText":
        """The same text with one more byte."""
        return OpenText(self.base, self.tail + bytes([byte]))


@dataclass(frozen=True, slots=True)
class Member:
    """One of the token strings of a state's covering."""

    token_ids: tuple[int, ...]  # without the tokens that all strings of the state begin with
    num_bytes_ahead: int  # how many bytes its last token goes beyond the text so far
    probability: float  # its share of the mass of the state's strings


class Covering(Protocol):
    """A rule that selects the token strings to follow."""

    def open(self, reader: TokenReader, root: TokenString, context: bytes) -> "State":
        """The state after `root` and the context."""

    def advance(self, state: "State", byte: int, following: bytes) -> "State":
        """The state after one more byte. `following`: the known bytes after it, up to 63.

        Raises InvalidRequestError if the covering does not support the text.
        """


@dataclass(frozen=True, eq=False)  # no slots: the cached properties need a `__dict__`
class State:
    """The covering of the text so far, as bundles. Immutable, so it may be advanced several times."""

    covering: Covering
    reader: TokenReader
    bundles: tuple[Bundle, ...]
    open_texts: tuple[OpenText, ...]  # the text after different stable tokens, most likely first
    log_probability: float = 0.0  # of the bytes since `CharacterModel.open`, each given the previous ones
    possible: npt.NDArray[np.bool_] | None = None  # [257]: the outcomes that are possible at all; None: all
    drafted: tuple[TokenString, ...] = ()  # strings read in advance; the references keep their rows alive

    @property
    def nbytes(self) -> int:
        """The memory of the rows that it holds. Keys and values are counted by its reader."""
        drafted = [string.log_probs.nbytes for string in self.drafted if string.log_probs is not None]
        return sum(drafted) + sum(bundle.nbytes for bundle in self.bundles)

    def advance(self, data: bytes) -> "State":
        """The state after these bytes. Raises InvalidRequestError if the covering does not support them."""
        return deque(self.walk(data), maxlen=1).pop() if data else self

    def walk(self, data: bytes) -> "Iterator[State]":
        """The states after each of the bytes. Faster than one `advance` per byte, since the next bytes are known."""
        state = self
        for index, byte in enumerate(data):
            state = self.covering.advance(state, byte, data[index + 1 : index + MAX_BYTES_AT_ONCE])
            yield state

    @cached_property
    def next_log_probs(self) -> npt.NDArray[np.float64]:
        """[257]: log probabilities of the 256 possible next bytes and of the end of the text."""
        masses = self._log_masses if self.possible is None else np.where(self.possible, self._log_masses, -np.inf)
        total = log_sum_exp(masses)
        return masses if np.isneginf(total) else masses - total

    @property
    def log_probability_with_end(self) -> float:
        """Like `log_probability`, with the end of the text after it."""
        return self.log_probability + float(self.next_log_probs[END])

    def find_members(self, limit: int) -> list[Member]:
        """The most likely token strings of the state, most likely first."""
        found = [member for bundle in self.bundles for member in bundle.find_most_likely(limit)]
        found.sort(key=lambda member: -member[0])
        return [
            Member(string.find_tokens_since(self.beginning), num_ahead, float(np.exp(log_mass - self.log_mass)))
            for log_mass, string, num_ahead in found[:limit]
        ]

    @cached_property
    def beginning(self) -> TokenString:
        """The longest token string that all strings of the state begin with."""
        return find_common_beginning([open_text.base for open_text in self.open_texts])

    @cached_property
    def log_mass(self) -> float:
        """The mass of all followed strings. The exact mass is at least this."""
        return log_sum_exp(self._log_masses)

    @cached_property
    def _log_masses(self) -> npt.NDArray[np.float64]:
        table = np.full((len(self.bundles), NUM_OUTCOMES), -np.inf)
        for row, bundle in zip(table, self.bundles, strict=True):
            row[bundle.children.bytes] = bundle.log_masses
            row[END] = bundle.log_mass + bundle.log_end
        masses: npt.NDArray[np.float64] = np.logaddexp.reduce(table)
        return masses


def narrow_all(bundles: Sequence[Bundle], byte: int) -> dict[TokenString, Bundle]:
    """The bundles that continue with this byte, narrowed to it, by string."""
    return {bundle.string: narrowed for bundle in bundles if (narrowed := bundle.narrow(byte)) is not None}
