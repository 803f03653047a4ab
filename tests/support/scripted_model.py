"""A language model without weights. It follows simple rules, counts its tokens, and fails when the test says so."""

import dataclasses
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from inference.errors import OverloadedError
from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequencePart
from inference.model.sampler import CrossingScores, SampledToken, SampleRequest, SampleResult
from tests.support.toys import ToyTokenizer


@dataclasses.dataclass(frozen=True)
class CountedRow:
    """Keys and values without numbers: only the token that they belong to. Also a row of logits: nothing."""

    token_id: int = -1
    nbytes: int = 8


class CountingCache:
    """A cache without keys and values. It has only their number and their tokens."""

    def __init__(self, owner: "ScriptedModel", capacity: int) -> None:
        self.owner = owner
        self.capacity = capacity
        self.token_ids: list[int] = []
        owner.register(self)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def nbytes(self) -> int:
        return 8 * self.capacity

    def reserve(self, num_new: int) -> None:
        self.owner.before_reserve(self)
        if self.capacity < self.num_tokens + num_new:
            self.capacity = self.num_tokens + num_new
            self.owner.num_grown += 1
            self.owner.count_held()

    def keep(self, tree: TokenTree) -> None:
        self.owner.before_keep(self)
        self.token_ids += tree.chain_ids

    def copy_branches(self, tree: TokenTree) -> list[CountedRow]:
        return [CountedRow(token_id) for token_id in tree.branch_ids]

    def copy_tokens(self, start: int) -> list[CountedRow]:
        return [CountedRow(token_id) for token_id in self.token_ids[start:]]

    def append(self, rows: Sequence[CountedRow]) -> None:
        self.reserve(len(rows))
        self.token_ids += [row.token_id for row in rows]

    def cut(self, num_tokens: int) -> None:
        del self.token_ids[num_tokens:]

    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> "CountingCache":
        self.owner.before_fork()
        token_ids = self.token_ids[:num_tokens]
        other = CountingCache(self.owner, max(len(token_ids), capacity))
        other.token_ids = token_ids
        return other


@dataclasses.dataclass(eq=False)
class ScriptedModel:
    """A model that chooses the shortest allowed token at the deepest crossing; of equals the least id.

    So it spells healed bytes with as many tokens as possible. It never ends a text. `max_tokens` is its window.
    """

    toy: ToyTokenizer
    max_tokens: int = 512
    runs_together: bool = True
    token_cost: float = 0.1
    before_new_cache: Callable[[], None] = lambda: None
    before_forward: Callable[[Sequence[SequencePart]], None] = lambda _: None
    before_choose: Callable[[Sequence[SampleRequest]], None] = lambda _: None
    before_fork: Callable[[], None] = lambda: None
    before_keep: Callable[[CountingCache], None] = lambda _: None
    before_reserve: Callable[[CountingCache], None] = lambda _: None
    spoil: Callable[[SampleRequest, SampleResult], SampleResult] = lambda _, result: result
    num_row_bytes: int = 8
    num_grown: int = 0  # how often a cache had less room than its sequence needed
    most_held: int = 0  # the largest room of all caches together, in tokens
    furthest: int = 0  # the largest number of tokens of a sequence, including the new ones of a step
    step_sizes: list[int] = dataclasses.field(default_factory=list)
    _caches: "weakref.WeakSet[CountingCache]" = dataclasses.field(default_factory=weakref.WeakSet)

    def new_cache(self, num_tokens: int = 256) -> CountingCache:
        self.before_new_cache()
        return CountingCache(self, num_tokens)

    def forward(self, parts: Sequence[SequencePart]) -> list[list[CountedRow]]:
        self.before_forward(parts)
        self.step_sizes.append(len(parts))
        for part in parts:
            depth = max(part.tree.find_depths(), default=0)
            self.furthest = max(self.furthest, part.cache.num_tokens + len(part.tree.chain_ids) + depth)
        return [[CountedRow(nbytes=self.num_row_bytes)] * part.num_logit_rows for part in parts]

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        self.before_choose(requests)
        return [self._choose(request) for request in requests]

    def register(self, cache: CountingCache) -> None:
        """Adds a new cache to the live caches."""
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
        unread = tuple(branch for branch in range(len(request.tree.branch_ids)) if request.rows[branch + 1] is None)
        if unread:
            return SampleResult((), unread)
        crossing = max(request.crossings, key=lambda crossing: len(request.tree.find_path(crossing.node)))
        choice = SampledToken(crossing, self._find_shortest(crossing))
        num = len(request.crossings)
        scores = CrossingScores(np.zeros(num), np.full(num, choice.token_id), np.zeros(num))
        result = SampleResult((choice,) * len(request.random_sources), scores=scores if request.wants_scores else None)
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
