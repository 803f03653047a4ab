"""Where a character-level model stands after some bytes."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inference.characters.bundle import END, NUM_OUTCOMES, Bundle, sum_all
from inference.characters.token_string import TokenReader, TokenString


@dataclass(frozen=True, slots=True)
class OpenText:
    """The end of the text, from where its tokens can still change, or before."""

    base: TokenString  # all tokens before
    tail: bytes

    def extend(self, byte: int) -> "OpenText":
        """One byte longer, the base as it is."""
        return OpenText(self.base, self.tail + bytes([byte]))


@dataclass(frozen=True, slots=True)
class Totals:
    """What has been summed up since the model was opened. Natural logarithms."""

    log_probability: float = 0.0  # of the bytes, each given those before it
    log_missed: float | None = -np.inf  # the mass of the strings that were not followed; None: not known

    def add(self, log_prob: float, log_missed: Sequence[float]) -> "Totals":
        """With one more byte, and what was not followed there."""
        if self.log_missed is None:
            return Totals(self.log_probability + log_prob, None)
        return Totals(self.log_probability + log_prob, float(np.logaddexp.reduce([self.log_missed, *log_missed])))


@dataclass(frozen=True, slots=True)
class Member:
    """One of the token strings that carry a state."""

    token_ids: tuple[int, ...]  # behind what all of them begin with
    num_bytes_ahead: int  # by how much its last token goes beyond the bytes so far
    share: float  # of the state's mass


class Covering(Protocol):
    """One way to follow token strings."""

    def open(self, reader: TokenReader, root: TokenString, context: bytes) -> "State":
        """The state after `root` and the context."""
        ...

    def walk(self, state: "State", data: bytes) -> "Iterator[State]":
        """The states after each of the bytes."""
        ...


class State:
    """The covering of the bytes so far, as bundles. Immutable: keep it, advance it twice, drop it."""

    def __init__(
        self,
        covering: Covering,
        reader: TokenReader,
        bundles: Sequence[Bundle],
        open_texts: Sequence[OpenText],
        totals: Totals,
        possible: npt.NDArray[np.bool_] | None = None,
        unread: Sequence[TokenString] = (),
        drafted: Sequence[TokenString] = (),
    ) -> None:
        """`open_texts`: the text's end, after each of the ways in which tokens are settled; the heaviest first.
        `possible`: which of the 257 ways to go on there are at all; None: all.
        `unread`: strings that spell the text, too light to be worth a forward pass. Their mass is spread evenly.
        `drafted`: strings that were read before they are needed, held here so that they are not forgotten.
        """
        self.covering = covering
        self.reader = reader
        self.bundles = tuple(bundles)
        self.open_texts = tuple(open_texts)
        self.totals = totals
        self.unread = tuple(unread)
        self.drafted = drafted
        self._possible = possible

    def advance(self, data: bytes) -> "State":
        """The state after these bytes too. Raises InvalidRequestError where they cannot follow."""
        return deque(self.walk(data), maxlen=1).pop() if data else self

    def walk(self, data: bytes) -> "Iterator[State]":
        """The states after each of the bytes; quicker than as many `advance`, because the bytes to come are known."""
        return self.covering.walk(self, data)

    @cached_property
    def next_log_probs(self) -> npt.NDArray[np.float64]:
        """[257]: the logarithm of the probability of each next byte, and behind them of the end of the text."""
        masses = self._log_masses if self._possible is None else np.where(self._possible, self._log_masses, -np.inf)
        total = sum_all(masses)
        return masses if np.isneginf(total) else masses - total

    def find_members(self, limit: int) -> list[Member]:
        """The heaviest of the token strings that carry the state, the heaviest first."""
        found = [(string.weigh(), string, 0) for string in self.unread]
        for bundle in self.bundles:
            found += bundle.find_heaviest(limit)
        found.sort(key=lambda member: -member[0])
        return [
            Member(string.find_tokens_since(self.beginning), num_ahead, float(np.exp(log_mass - self.log_mass)))
            for log_mass, string, num_ahead in found[:limit]
        ]

    @cached_property
    def beginning(self) -> TokenString:
        """What all the strings begin with that are followed."""
        base, *others = [open_text.base for open_text in self.open_texts]
        while not all(other.begins_with(base) for other in others):
            assert base.parent is not None, "all go on from one string"
            base = base.parent
        return base

    def draw_member(self, rng: np.random.Generator) -> tuple[TokenString, int]:
        """One of the token strings, in proportion to its mass; and by how many bytes it goes beyond those so far."""
        masses = [bundle.log_ahead for bundle in self.bundles] + [string.weigh() for string in self.unread]
        shares = np.exp(np.array(masses) - sum_all(np.array(masses)))
        place = int(rng.choice(len(masses), p=shares / shares.sum()))
        if place < len(self.bundles):
            return self.bundles[place].draw(rng)
        return self.unread[place - len(self.bundles)], 0

    @cached_property
    def log_mass(self) -> float:
        """Of all that is held. The exact mass lies between this and this with what is missed."""
        return sum_all(self._log_masses)

    @cached_property
    def _log_masses(self) -> npt.NDArray[np.float64]:
        table = np.full((len(self.bundles) + 1, NUM_OUTCOMES), -np.inf)
        for row, bundle in zip(table, self.bundles, strict=False):
            row[bundle.children.bytes] = bundle.log_masses
            row[END] = bundle.log_mass + bundle.log_end
        if self.unread:
            table[-1] = sum_all(np.array([string.weigh() for string in self.unread])) - np.log(NUM_OUTCOMES)
        masses: npt.NDArray[np.float64] = np.logaddexp.reduce(table)
        return masses


def narrow_all(bundles: Sequence[Bundle], byte: int) -> dict[TokenString, Bundle]:
    """What is left of the bundles when this byte comes, by string."""
    narrowed = [bundle.narrow(byte) for bundle in bundles]
    return {bundle.string: bundle for bundle in narrowed if bundle is not None}


def find_draft(bundles: Sequence[Bundle], data: bytes) -> bytes:
    """What comes after `data` if the heaviest of the tokens is right that go beyond it."""
    drafts = [bundle.find_draft(data) for bundle in bundles]
    return max(drafts, key=lambda draft: draft[0], default=(-np.inf, b""))[1]
