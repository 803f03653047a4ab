"""What the engine asks of a model: forward a tree, choose among its crossings, keep a path. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from inference.healing.covering import Crossing
from inference.healing.token_tree import TokenTree

RandomSource = object  # what a model draws with, in a kind of its own


class SequenceCache(Protocol):
    """The keys and values of one sequence's kept tokens."""

    num_tokens: int

    def reserve(self, num_new: int) -> None:
        """Makes room for `num_new` tokens behind the kept ones, where there is not enough yet.

        `LanguageModel.step` does it too. Call it for each sequence before a step to learn which of them has no room.
        Raises OverloadedError where the memory does not suffice; the cache is as before then.
        """
        ...

    def keep(self, tree: TokenTree, node: int | None) -> None:
        """Keeps the chain of the tree that was just forwarded and the path to `node`; forgets the other branches."""
        ...

    def fork(self) -> Self:
        """A copy that changes independently. Raises OverloadedError where there is no memory for it."""
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one request wants its tokens drawn."""

    temperature: float
    top_p: float

    @property
    def is_greedy(self) -> bool:
        """True where the likeliest is taken and nothing is drawn."""
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """What is to be chosen after a forward pass over `tree`."""

    tree: TokenTree
    crossings: tuple[Crossing, ...]
    sampling: Sampling
    random_sources: tuple[RandomSource | None, ...] = (None,)  # one for each choice that is wanted


@dataclass(frozen=True, slots=True)
class Choice:
    """A token, and the crossing that it is chosen at."""

    crossing: Crossing
    token_id: int


@dataclass(frozen=True, slots=True)
class SampleResult:
    """The masses of a request's crossings, and the choices among them. Arrays are [num_crossings], on the host."""

    log_masses: npt.NDArray[np.float64]  # log P(path) + log of the mass of the tokens that may follow it
    best_ids: npt.NDArray[np.int64]
    best_log_probs: npt.NDArray[np.float64]  # log P(path + best token)
    choices: tuple[Choice, ...]
    num_hot_hits: int  # lookups of an allowed set that the hot-prefix cache answered, and those it built
    num_hot_misses: int


@dataclass(frozen=True, slots=True)
class Step:
    """One sequence's part in a forward pass. Afterwards call `cache.keep` once."""

    cache: SequenceCache
    tree: TokenTree
    sample: SampleRequest | None = None  # None while a long prompt is still being read


class LanguageModel(Protocol):
    """A model that steps many sequences together."""

    max_tokens: int  # that a sequence can hold

    def new_cache(self, num_tokens: int) -> SequenceCache:
        """An empty cache with room for `num_tokens`, and for no more until `reserve` asks for it.

        Raises OverloadedError where there is no memory for it.
        """
        ...

    def new_random_source(self, seed: int | None) -> RandomSource:
        """What one candidate is drawn with; `None` seeds it from the system."""
        ...

    def step(self, steps: Sequence[Step]) -> list[SampleResult | None]:
        """Forwards all steps in one pass; for each, what was chosen, or None where it asked for nothing.

        Raises OverloadedError where the memory does not suffice for all of them together. No cache has changed then,
        so fewer of the same steps may be tried again.
        """
        ...
