"""The engine's interface to a model: forward a tree, choose among its crossings, keep a path. Without torch."""

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
        """Makes room for `num_new` tokens after the kept ones, if necessary.

        `LanguageModel.step` does this too. Call this first, with `tree.num_rows` of each sequence, to find out which
        of them has no room. Raises OverloadedError if there is no memory; the cache is then unchanged.
        """
        ...

    def keep(self, tree: TokenTree, node: int | None) -> None:
        """Keeps the chain of the last forwarded tree and the path to `node`; discards the other branches."""
        ...

    def fork(self) -> Self:
        """An independent copy. Raises OverloadedError if there is no memory for it."""
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens of one request are sampled."""

    temperature: float
    top_p: float

    @property
    def is_greedy(self) -> bool:
        """True if the most likely token is chosen, without sampling."""
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """A request for choices after a forward pass over `tree`."""

    tree: TokenTree
    crossings: tuple[Crossing, ...]
    sampling: Sampling
    random_sources: tuple[RandomSource | None, ...] = (None,)  # one for each choice


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
    num_hot_hits: int  # allowed sets found in the hot-prefix cache; only Rule.SPELL looks them up
    num_hot_misses: int  # allowed sets that the cache had to build


@dataclass(frozen=True, slots=True)
class Step:
    """One sequence's part in a forward pass. Call `cache.keep` once after the pass."""

    cache: SequenceCache
    tree: TokenTree
    sample: SampleRequest | None = None  # None while a long prompt is prefilled


class LanguageModel(Protocol):
    """A model that steps many sequences together."""

    max_tokens: int  # the most tokens of one sequence

    def new_cache(self, num_tokens: int) -> SequenceCache:
        """An empty cache with room for `num_tokens`; `reserve` makes room for more.

        Raises OverloadedError if there is no memory for it.
        """
        ...

    def new_random_source(self, seed: int | None) -> RandomSource:
        """A random source for one candidate. `None` seeds it from the system."""
        ...

    def step(self, steps: Sequence[Step]) -> list[SampleResult | None]:
        """Forwards all steps in one pass. Returns one result per step, None if its `sample` is None.

        Raises OverloadedError if there is not enough memory for all steps together. The caches are then unchanged, so
        fewer of the same steps may be tried again.
        """
        ...
