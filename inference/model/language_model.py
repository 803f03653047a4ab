"""What the engine asks of a model: forward a tree, choose among its crossings, keep a path. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from inference.healing.covering import Crossing
from inference.healing.token_tree import TokenTree

RandomSource = object  # each implementation of LanguageModel has its own type


class SequenceCache(Protocol):
    """The keys and values of one sequence's kept tokens."""

    num_tokens: int

    def reserve(self, num_new: int) -> None:
        """Makes room for `num_new` tokens behind the kept ones, where there is not enough yet.

        `LanguageModel.step` does this too. Call it for each sequence before a step, with `tree.num_rows`, to learn
        which of them has no room. Raises OverloadedError where there is no memory; the cache is unchanged then.
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
    """How one request's tokens are drawn."""

    temperature: float
    top_p: float

    @property
    def is_greedy(self) -> bool:
        """True where the likeliest token is taken and none is drawn."""
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """A choice that is wanted after a forward pass over `tree`."""

    tree: TokenTree
    crossings: tuple[Crossing, ...]
    sampling: Sampling
    random_sources: tuple[RandomSource | None, ...] = (None,)  # one for each wanted choice


@dataclass(frozen=True, slots=True)
class Choice:
    """A token, and the crossing at which it was chosen."""

    crossing: Crossing
    token_id: int


@dataclass(frozen=True, slots=True)
class SampleResult:
    """The masses of a request's crossings, and the choices among them. Arrays are [num_crossings], on the host."""

    log_masses: npt.NDArray[np.float64]  # log P(path) + log of the mass of the tokens that may follow it
    best_ids: npt.NDArray[np.int64]
    best_log_probs: npt.NDArray[np.float64]  # log P(path + best token)
    choices: tuple[Choice, ...]
    num_hot_hits: int  # lookups that the hot-prefix cache had the set for; only Rule.SPELL looks sets up
    num_hot_misses: int  # lookups that it had to build the set for


@dataclass(frozen=True, slots=True)
class Step:
    """One sequence's part in a forward pass. Call `cache.keep` once after it."""

    cache: SequenceCache
    tree: TokenTree
    sample: SampleRequest | None = None  # None while a long prompt is still being read


class LanguageModel(Protocol):
    """A model that steps many sequences together."""

    max_tokens: int  # most tokens of one sequence

    def new_cache(self, num_tokens: int) -> SequenceCache:
        """An empty cache with room for `num_tokens`, and for no more until `reserve` asks for it.

        Raises OverloadedError where there is no memory for it.
        """
        ...

    def new_random_source(self, seed: int | None) -> RandomSource:
        """A source to draw one candidate with; `None` seeds it from the system."""
        ...

    def step(self, steps: Sequence[Step]) -> list[SampleResult | None]:
        """Forwards all steps in one pass. Returns a result for each, None where its `sample` is None.

        Raises OverloadedError where there is not enough memory for all of them together. No cache has changed then,
        so fewer of the same steps may be tried again.
        """
        ...
