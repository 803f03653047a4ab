"""The state of a character-level model after some bytes."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inference.characters.bundle import END, NUM_OUTCOMES, Bundle, sum_all
from inference.characters.token_string import TokenReader, TokenString, find_common_beginning


@dataclass(frozen=True, slots=True)
class OpenText:
    """The text so far: stable tokens and the bytes after them."""

    base: TokenString  # the stable tokens: no continuation can change them
    tail: bytes  # the text after them

    def extend(self, byte: int) -> "OpenText":
        """The same text with one more byte."""
        return OpenText(self.base, self.tail + bytes([byte]))


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all bytes since `CharacterModel.open`. Natural logarithms."""

    log_probability: float = 0.0  # of the bytes, each given the previous ones
    log_dropped: float | None = -np.inf  # mass of the dropped strings; None: unknown

    def add(self, log_prob: float, log_dropped: Sequence[float]) -> "Totals":
        """The totals after one more byte, at which strings with these masses were dropped."""
        if self.log_dropped is None:
            return Totals(self.log_probability + log_prob, None)
        return Totals(self.log_probability + log_prob, float(np.logaddexp.reduce([self.log_dropped, *log_dropped])))


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
        ...

    def walk(self, state: "State", data: bytes) -> "Iterator[State]":
        """The states after each of the bytes."""
        ...


@dataclass(frozen=True, eq=False)  # no slots: the cached properties need a `__dict__`
class State:
    """The covering of the text so far, as bundles. Immutable, so it may be advanced several times."""

    covering: Covering
    reader: TokenReader
    bundles: tuple[Bundle, ...]
    open_texts: tuple[OpenText, ...]  # the text after different stable tokens, most likely first
    totals: Totals
    possible: npt.NDArray[np.bool_] | None = None  # [257]: the outcomes that are possible at all; None: all
    unread: tuple[TokenString, ...] = ()  # strings below the threshold; their mass is spread evenly
    drafted: tuple[TokenString, ...] = ()  # strings read in advance; the references keep their rows alive

    def advance(self, data: bytes) -> "State":
        """The state after these bytes. Raises InvalidRequestError if the covering does not support them."""
        return deque(self.walk(data), maxlen=1).pop() if data else self

    def walk(self, data: bytes) -> "Iterator[State]":
        """The states after each of the bytes. Faster than one `advance` per byte, since the next bytes are known."""
        return self.covering.walk(self, data)

    @cached_property
    def next_log_probs(self) -> npt.NDArray[np.float64]:
        """[257]: log probabilities of the 256 possible next bytes and of the end of the text."""
        masses = self._log_masses if self.possible is None else np.where(self.possible, self._log_masses, -np.inf)
        total = sum_all(masses)
        return masses if np.isneginf(total) else masses - total

    def find_members(self, limit: int) -> list[Member]:
        """The most likely token strings of the state, most likely first."""
        found = [(string.get_log_mass(), string, 0) for string in self.unread]
        for bundle in self.bundles:
            found += bundle.find_most_likely(limit)
        found.sort(key=lambda member: -member[0])
        return [
            Member(string.find_tokens_since(self.beginning), num_ahead, float(np.exp(log_mass - self.log_mass)))
            for log_mass, string, num_ahead in found[:limit]
        ]

    @cached_property
    def beginning(self) -> TokenString:
        """The longest token string that all strings of the state begin with."""
        return find_common_beginning([open_text.base for open_text in self.open_texts])

    def draw_member(self, rng: np.random.Generator) -> tuple[TokenString, int]:
        """A token string, sampled by its mass, and how many bytes it goes beyond the text so far."""
        masses = [bundle.log_ahead for bundle in self.bundles] + [string.get_log_mass() for string in self.unread]
        probabilities = np.exp(np.array(masses) - sum_all(np.array(masses)))
        index = int(rng.choice(len(masses), p=probabilities / probabilities.sum()))
        if index < len(self.bundles):
            return self.bundles[index].draw(rng)
        return self.unread[index - len(self.bundles)], 0

    @cached_property
    def log_mass(self) -> float:
        """The mass of all followed strings. The exact mass is at least this, and at most `log_dropped` more."""
        return sum_all(self._log_masses)

    @cached_property
    def _log_masses(self) -> npt.NDArray[np.float64]:
        table = np.full((len(self.bundles) + 1, NUM_OUTCOMES), -np.inf)
        for row, bundle in zip(table, self.bundles, strict=False):
            row[bundle.children.bytes] = bundle.log_masses
            row[END] = bundle.log_mass + bundle.log_end
        if self.unread:
            table[-1] = sum_all(np.array([string.get_log_mass() for string in self.unread])) - np.log(NUM_OUTCOMES)
        masses: npt.NDArray[np.float64] = np.logaddexp.reduce(table)
        return masses


def narrow_all(bundles: Sequence[Bundle], byte: int) -> dict[TokenString, Bundle]:
    """The bundles that continue with this byte, narrowed to it, by string."""
    narrowed = [bundle.narrow(byte) for bundle in bundles]
    return {bundle.string: bundle for bundle in narrowed if bundle is not None}


def find_draft(bundles: Sequence[Bundle], data: bytes) -> bytes:
    """The bytes after `data` in the most likely token that goes beyond `data`; `b""` if there is none."""
    drafts = [bundle.find_draft(data) for bundle in bundles]
    return max(drafts, key=lambda draft: draft[0], default=(-np.inf, b""))[1]
