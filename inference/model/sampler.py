"""The exact choice of the next token, over rows of logits on any device.

A row answers questions about its logits where they are; nothing of the vocabulary's size is asked of it. The log-mass
of a crossing is log P(path) + log of the probability of all tokens that may follow there (Vieira et al. 2025, section
3.4).

Naive form: forward all branches, score every crossing, take the best. But the path to a branch that was not forwarded
has a probability already, from the row of its parent, and nothing beyond it can be more likely. So

1. a crossing at such a branch is bounded by its path. If some token after a branch that was forwarded is more likely
   than the bound, the greedy choice needs no pass;
2. if any token may follow there, the bound is the mass of the crossing: the probabilities of all tokens sum to one.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from inference.errors import ModelError
from inference.healing.covering import Crossing, Rule, find_allowed
from inference.healing.token_tree import TokenTree
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_Ids = npt.NDArray[np.int32]
_Logits = npt.NDArray[np.float32]


class BestToken(NamedTuple):
    """What a row says of the tokens that may follow a crossing. All numbers are about logits."""

    token_id: int  # of equally likely tokens, the one with the smallest id; -1 if none may follow
    logit: float
    log_mass: float  # log of the sum of the exponentials of all allowed tokens


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens of one request are sampled."""

    temperature: float
    top_p: float

    @property
    def is_greedy(self) -> bool:
        """True if the most likely token is chosen, without sampling."""
        return self.temperature == 0.0


class LogitRow(Protocol):
    """The next-token logits after one node. Each runner has its own type."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""

    @property
    def log_total(self) -> float:
        """log of the sum of the exponentials of all logits."""

    def find_logit(self, token_id: int) -> float:
        """The logit of one token."""

    def find_best(self, crossing: Crossing) -> BestToken:
        """The best of the tokens that may follow a crossing, and the mass of all of them."""

    def to_host(self) -> _Logits:
        """The logits on the host, [vocab_size]. Those of rows of the head that are no tokens are -inf."""

    @staticmethod
    def pick(
        members: "Sequence[tuple[Any, Crossing, float]]", sampling: Sampling, draws: Sequence[float]
    ) -> list[tuple[int, int, float]]:
        """Picks among the tokens that may follow some crossings: for each, its row and an offset of its logits.

        `draws`: a number from 0 to 1 for each pick. Samples by `sampling`; the most likely ones, in order, if it is
        greedy. Of equally likely tokens, those of earlier crossings come first, then those with smaller ids. Returns
        the member, the token and its logit with the offset. If fewer tokens may follow, there are fewer picks.
        """


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """A request for choices among the crossings of `tree`."""

    tree: TokenTree
    crossings: tuple[Crossing, ...]
    rows: Sequence[Any]  # for the chain's end, then for each branch: its LogitRow, or None if it is missing
    sampling: Sampling
    random_sources: tuple[np.random.Generator | None, ...] = (None,)  # one for each choice
    wants_scores: bool = False

    @property
    def wants_best(self) -> bool:
        """True if only the single most likely path and token is asked for."""
        return self.sampling.is_greedy and len(self.random_sources) == 1 and not self.wants_scores


@dataclass(frozen=True, slots=True)
class Choice:
    """A token, and the crossing at which it was chosen."""

    crossing: Crossing
    token_id: int
    # log P(path and token | the bytes that they spell): at least so much, where a row that was not needed is missing.
    # None: the model does not tell it.
    log_prob: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CrossingScores:
    """The masses of a request's crossings. Arrays are [num_crossings], on the host."""

    log_masses: npt.NDArray[np.float64]  # log P(path) + log of the mass of the tokens that may follow it
    best_ids: npt.NDArray[np.int64]
    best_log_probs: npt.NDArray[np.float64]  # log P(path + best token)


@dataclass(frozen=True, slots=True)
class SampleResult:
    """The choices of a request, or the branches that must be forwarded before they are certain."""

    choices: tuple[Choice, ...]  # empty if `missing` is not
    missing: tuple[int, ...] = ()  # the branches whose logits are needed first, parents first
    scores: CrossingScores | None = None  # if the request wants them


def choose(request: SampleRequest) -> SampleResult:
    """The choices of a request, from the rows that are there. That of the chain's end must be one of them."""
    paths = _Paths(request)
    reached = [each for each in request.crossings if not paths.missing[each.node]]
    rows = [request.rows[find_row(each.node)] for each in reached]
    found = [row.find_best(each) for row, each in zip(rows, reached, strict=True)]
    offsets = [paths.log_probs[each.node] - row.log_total for row, each in zip(rows, reached, strict=True)]
    bests = [each.logit + offset for each, offset in zip(found, offsets, strict=True)]
    if needed := paths.find_needed(max(bests, default=-math.inf)):
        return SampleResult((), needed)
    log_masses = [each.log_mass + offset for each, offset in zip(found, offsets, strict=True)]
    log_total = log_sum_exp(np.array([*log_masses, *paths.unread]))
    if request.sampling.is_greedy and len(request.random_sources) == 1:
        best = max(range(len(bests)), key=bests.__getitem__)
        choices = [Choice(reached[best], found[best].token_id, bests[best] - log_total)]
    else:
        draws = [0.0 if each is None else each.random() for each in request.random_sources]
        picks = rows[0].pick(list(zip(rows, reached, offsets, strict=True)), request.sampling, draws)
        choices = [Choice(reached[member], token_id, score - log_total) for member, token_id, score in picks]
    ids = np.array([each.token_id for each in found])
    scores = CrossingScores(np.array(log_masses), ids, np.array(bests)) if request.wants_scores else None
    return SampleResult(tuple(choices), scores=scores)


def find_row(node: int | None) -> int:
    """A node's index among the rows of its tree; the chain's end comes first."""
    return 0 if node is None else node + 1


class _Paths:
    """The probabilities of a tree's paths, for each node; None is the chain's end."""

    def __init__(self, request: SampleRequest) -> None:
        assert request.rows[0] is not None, "the chain's end is always forwarded"
        self._request = request
        self.log_probs: dict[int | None, float] = {None: 0.0}  # a bound if a row on the path is missing
        self.missing: dict[int | None, tuple[int, ...]] = {None: ()}  # the branches without rows, the node itself too
        for branch, (token_id, parent) in enumerate(zip(request.tree.branch_ids, request.tree.parents, strict=True)):
            above = request.rows[find_row(parent)]
            log_prob = 0.0 if above is None else above.find_logit(token_id) - above.log_total
            self.log_probs[branch] = self.log_probs[parent] + log_prob
            self.missing[branch] = self.missing[parent] + (() if request.rows[branch + 1] is not None else (branch,))

    def find_needed(self, best: float) -> tuple[int, ...]:
        """The missing branches that may change the choice, parents first. `best`: of the crossings that are reached."""
        wants_best = self._request.wants_best
        missing = [
            self.missing[each.node]
            for each in self._request.crossings
            if not (wants_best and self.log_probs[each.node] < best)
        ]
        return tuple(sorted(set().union(*missing)))

    @property
    def unread(self) -> Iterable[float]:
        """Bounds of the masses that are missing: all at and below a branch have no more than the path to it."""
        return [self.log_probs[branch] for branch, missing in self.missing.items() if missing == (branch,)]


class NumpyRow:
    """The next-token logits after one node, on the host.

    The sorted vocabulary makes the tokens that may follow a slice, so nothing of the vocabulary's size is masked.
    """

    __slots__ = ("_log_total", "_tokens", "logits")

    def __init__(self, logits: _Logits, tokens: "NumpyTokens") -> None:
        """`logits`: [vocab_size], -inf for padding rows."""
        self.logits = logits
        self._tokens = tokens
        self._log_total: float | None = None

    @property
    def nbytes(self) -> int:
        """See `LogitRow`."""
        return self.logits.nbytes

    @property
    def log_total(self) -> float:
        """See `LogitRow`. Computed on first use."""
        if self._log_total is None:
            self._log_total = log_sum_exp(self.logits)
        return self._log_total

    def find_logit(self, token_id: int) -> float:
        """See `LogitRow`."""
        return float(self.logits[token_id])

    def find_best(self, crossing: Crossing) -> BestToken:
        """See `LogitRow`. Where any token may follow, nothing is summed again."""
        ids = self._tokens.find_ids(crossing)
        if ids is None:
            token_id = int(self.logits.argmax())
            return BestToken(token_id, float(self.logits[token_id]), self.log_total)
        if not ids.size:
            return BestToken(-1, -math.inf, -math.inf)
        logits = self.logits[ids]
        best = logits.max()
        return BestToken(int(ids[logits == best].min()), float(best), log_sum_exp(logits))

    def to_host(self) -> _Logits:
        """See `LogitRow`."""
        return self.logits

    @staticmethod
    def pick(
        members: "Sequence[tuple[NumpyRow, Crossing, float]]", sampling: Sampling, draws: Sequence[float]
    ) -> list[tuple[int, int, float]]:
        """See `LogitRow`."""
        logits = [row.logits for row, _, _ in members]
        allowed = [row._tokens.find_ids(crossing) for row, crossing, _ in members]
        parts = [np.arange(of.size) if own is None else own for of, own in zip(logits, allowed, strict=True)]
        ids, owners = np.concatenate(parts), np.repeat(np.arange(len(parts)), [each.size for each in parts])
        scores = np.concatenate([of[own].astype(np.float64) for of, own in zip(logits, parts, strict=True)])
        scores += np.array([offset for _, _, offset in members])[owners]
        if sampling.is_greedy:
            num_picks = min(len(draws), int(np.isfinite(scores).sum()))
            picks = np.lexsort((ids, owners, -scores))[:num_picks]
        else:
            weights = np.exp((scores - scores.max()) / sampling.temperature)
            if sampling.top_p < 1.0:  # the fewest most likely ones that reach it
                order = np.argsort(-weights, kind="stable")
                before = np.cumsum(weights[order]) - weights[order]
                weights[order[before >= sampling.top_p * weights.sum()]] = 0.0
            totals = np.cumsum(weights)
            picks = np.searchsorted(totals, np.array(draws) * totals[-1], side="right")
        return [(int(owners[each]), int(ids[each]), float(scores[each])) for each in picks]


class NumpyTokens:
    """Which tokens rows on the host have, and which may follow a crossing."""

    def __init__(self, vocabulary: Vocabulary, trie: Trie) -> None:
        self._trie = trie
        self._hot_prefixes = HotPrefixCache(trie)
        self._padding = find_padding(vocabulary, trie)

    def build_rows(self, logits: _Logits) -> list[NumpyRow]:
        """A row for each line of `logits`, [num_rows, vocab_size]; it may be overwritten. Rows own their memory.

        Raises ModelError if some are infinite or NaN: a choice among them would be arbitrary.
        """
        with np.errstate(all="ignore"):
            sums = logits.sum(axis=-1)  # much faster than to ask each of them
        if not np.isfinite(sums).all():
            raise ModelError("the model's logits are infinite or NaN: its weights are damaged or too large")
        if self._padding.size:
            logits[:, self._padding] = -np.inf
        return [NumpyRow(line.copy(), self) for line in logits]

    def find_ids(self, crossing: Crossing) -> _Ids | None:
        """The tokens that may follow; None if any may."""
        if not crossing.remaining_bytes:
            return None
        if crossing.rule is Rule.SPELL:
            return self._hot_prefixes.find(crossing.remaining_bytes)
        (lo, hi), _ = find_allowed(self._trie, crossing)
        return self._trie.order[lo:hi]


def find_padding(vocabulary: Vocabulary, trie: Trie) -> npt.NDArray[np.int64]:
    """The rows of the head that are no tokens."""
    return np.setdiff1d(np.flatnonzero(trie.rank == trie.num_tokens), sorted(vocabulary.special_ids))


def log_sum_exp(logits: npt.NDArray[Any]) -> float:
    """The logarithm of the sum of the exponentials; -inf for no numbers."""
    greatest = logits.max(initial=-np.inf)
    if greatest == -np.inf:
        return -math.inf
    return float(greatest) + math.log(float(np.exp(logits - greatest).sum(dtype=np.float64)))
