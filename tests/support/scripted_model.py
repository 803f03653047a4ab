"""A language model without weights. It follows simple rules, counts its tokens, and fails when the test says so."""

import dataclasses
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from inference.errors import OverloadedError
from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Choice, SampleRequest, SampleResult, Step
from tests.support.toys import ToyTokenizer


class CountingCache:
    """A cache without keys and values. It has only their number and their tokens."""

    def __init__(self, owner: "ScriptedModel", capacity: int) -> None:
        self.owner = owner
        self.capacity = capacity
        self.num_tokens = 0
        self.token_ids: list[int] = []
        owner.register(self)

    def reserve(self, num_new: int) -> None:
        self.owner.before_reserve(self)
        if self.capacity < self.num_tokens + num_new:
            self.capacity = self.num_tokens + num_new
            self.owner.num_grown += 1
            self.owner.count_held()

    def keep(self, tree: TokenTree, node: int | None) -> None:
        self.owner.before_keep(self)
        self.token_ids += [*tree.chain_ids, *(tree.branch_ids[branch] for branch in tree.find_path(node))]
        self.num_tokens = len(self.token_ids)

    def fork(self) -> "CountingCache":
        self.owner.before_fork()
        other = CountingCache(self.owner, self.capacity)
        other.num_tokens, other.token_ids = self.num_tokens, list(self.token_ids)
        return other


@dataclasses.dataclass(eq=False)
class ScriptedModel:
    """A model that chooses the shortest allowed token at the deepest crossing; of equals the least id.

    So it spells healed bytes with as many tokens as possible. It never ends a text. `max_tokens` is its window.
    """

    toy: ToyTokenizer
    max_tokens: int = 512
    before_new_cache: Callable[[], None] = lambda: None
    before_new_random_source: Callable[[], None] = lambda: None
    before_step: Callable[[Sequence[Step]], None] = lambda _: None
    before_fork: Callable[[], None] = lambda: None
    before_keep: Callable[[CountingCache], None] = lambda _: None
    before_reserve: Callable[[CountingCache], None] = lambda _: None
    spoil: Callable[[SampleRequest, SampleResult], SampleResult] = lambda _, result: result
    num_caches_made: int = 0
    num_grown: int = 0  # how often a cache had less room than its sequence needed
    most_held: int = 0  # the largest room of all caches together, in tokens
    furthest: int = 0  # the largest number of tokens of a sequence, including the new ones of a step
    step_sizes: list[int] = dataclasses.field(default_factory=list)
    _caches: "weakref.WeakSet[CountingCache]" = dataclasses.field(default_factory=weakref.WeakSet)

    def new_cache(self, num_tokens: int = 256) -> CountingCache:
        self.before_new_cache()
        return CountingCache(self, num_tokens)

    def new_random_source(self, seed: int | None) -> object:
        self.before_new_random_source()
        return seed

    def step(self, steps: Sequence[Step]) -> list[SampleResult | None]:
        self.before_step(steps)
        self.step_sizes.append(len(steps))
        for step in steps:
            depth = max(step.tree.find_depths(), default=0)
            self.furthest = max(self.furthest, step.cache.num_tokens + len(step.tree.chain_ids) + depth)
        return [None if step.sample is None else self._choose(step.sample) for step in steps]

    def register(self, cache: CountingCache) -> None:
        """Adds a new cache to the live caches."""
        self.num_caches_made += 1
        self._caches.add(cache)
        self.count_held()

    def count_held(self) -> None:
        """Updates `most_held`."""
        self.most_held = max(self.most_held, self.num_held)

    @property
    def num_held(self) -> int:
        """The room of all live caches, in tokens."""
        return sum(cache.capacity for cache in self._caches)

    def _choose(self, request: SampleRequest) -> SampleResult:
        crossing = max(request.crossings, key=lambda crossing: len(request.tree.find_path(crossing.node)))
        choice = Choice(crossing, self._find_shortest(crossing))
        num = len(request.crossings)
        result = SampleResult(
            log_masses=np.zeros(num),
            best_ids=np.full(num, choice.token_id),
            best_log_probs=np.zeros(num),
            choices=(choice,) * len(request.random_sources),
            num_hot_hits=0,
            num_hot_misses=0,
        )
        return self.spoil(request, result)

    def _find_shortest(self, crossing: Crossing) -> int:
        remaining, tokens = crossing.remaining_bytes, self.toy.vocabulary.token_bytes
        allowed = [
            (len(token), token_id)
            for token_id, token in enumerate(tokens)
            if token
            and (
                (token.startswith(remaining) and (crossing.rule is not Rule.CROSS or token != remaining))
                or (crossing.rule is Rule.SPELL and remaining.startswith(token))
            )
        ]
        return min(allowed)[1]


def raise_full() -> None:
    """Raises the error of a device without free memory."""
    raise OverloadedError("the device has no memory left for the keys and values of 7 tokens; try again in a moment")
