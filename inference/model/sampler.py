"""The exact choice of the next token, over rows of logits on any device.

A row answers questions about its logits where they are; only to sample are all of them copied to the host. The log-mass
of a crossing is log P(path) + log of the probability of all tokens that may follow there (Vieira et al. 2025, section
3.4).

Naive form: forward all branches, score every crossing, take the best. But the path to a branch that was not forwarded
has a probability already, from the row of its parent, and nothing beyond it can be more likely. So

1. a crossing at such a branch is bounded by its path. If some token after a branch that was forwarded is more likely
   than the bound, the greedy choice needs no pass;
2. if any token may follow there, the bound is the mass of the crossing: the probabilities of all tokens sum to one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference.errors import ModelError
from inference.healing.covering import Crossing, Rule, find_allowed
from inference.healing.token_tree import TokenTree
from trie_cache.trie import HotPrefixCache, Trie, Vocabulary

_Ids = npt.NDArray[np.int32]
_Logits = npt.NDArray[np.float32]
_ANY = Crossing(None, b"", Rule.EXTEND)


class BestToken(NamedTuple):
    """The best of the tokens that may follow a crossing, and their mass. All numbers are about logits."""

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


class LogitRow(ABC):
    """The next-token logits after one node, where they are. Each runner has its own type."""

    __slots__ = ("_log_total", "logits", "tokens")

    def __init__(self, logits: Any, tokens: Any) -> None:
        """`logits`: an array, [vocab_size], -inf for rows of the head that are no tokens.

        `tokens`: an object with `find_ids`, as `NumpyTokens`.
        """
        self.logits, self.tokens = logits, tokens
        self._log_total: float | None = None

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return int(self.logits.nbytes)

    @property
    def log_total(self) -> float:
        """log of the sum of the exponentials of all logits. Computed on first use."""
        if self._log_total is None:
            self._log_total = self.find_best(_ANY).log_mass
        return self._log_total

    def find_logit(self, token_id: int) -> float:
        """The logit of one token."""
        return float(self.logits[token_id])

    @abstractmethod
    def find_best(self, crossing: Crossing) -> BestToken:
        """The best of the tokens that may follow a crossing, and the mass of all of them."""

    @abstractmethod
    def to_host(self) -> _Logits:
        """The logits on the host, [vocab_size]."""


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
        """True if the single most likely path and token is asked for."""
        return self.sampling.is_greedy and len(self.random_sources) == 1


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A token, and the crossing at which it was chosen."""

    crossing: Crossing
    token_id: int
    # log P(path and token | the bytes that they spell): at least so much, where a row that was not needed is missing.
    # None: the server does not report it.
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

    choices: tuple[SampledToken, ...]  # empty if `missing` is not
    missing: tuple[int, ...] = ()  # the branches whose logits are needed first, parents first
    scores: CrossingScores | None = None  # if the request wants them


def choose(request: SampleRequest) -> SampleResult:
    """The choices of a request, from the rows that are there. That of the chain's end must be one of them."""
    if request.wants_best and request.crossings == (_ANY,) and not request.wants_scores:  # most tokens of a text
        best = request.rows[0].find_best(_ANY)
        return SampleResult((SampledToken(_ANY, best.token_id, best.logit - best.log_mass),))
    path_log_probs, missing = _weigh_paths(request)
    reached = [each for each in request.crossings if not missing[each.node]]
    rows = [request.rows[find_row(each.node)] for each in reached]
    found = [row.find_best(each) for row, each in zip(rows, reached, strict=True)]
    offsets = [path_log_probs[each.node] - row.log_total for row, each in zip(rows, reached, strict=True)]
    bests = [each.logit + offset for each, offset in zip(found, offsets, strict=True)]
    least = max(bests, default=-math.inf) if request.wants_best and not request.wants_scores else -math.inf
    # What is less likely than the best changes nothing but the scores.
    needed = set().union(*(missing[each.node] for each in request.crossings if path_log_probs[each.node] >= least))
    if needed:
        return SampleResult((), tuple(sorted(needed)))
    log_masses = [each.log_mass + offset for each, offset in zip(found, offsets, strict=True)]
    # All at and below a branch without a row have no more mass than the path to it.
    bounds = [path_log_probs[branch] for branch, on_path in missing.items() if on_path == (branch,)]
    log_total = log_sum_exp(np.array([*log_masses, *bounds]))
    if request.wants_best:
        at = max(range(len(bests)), key=bests.__getitem__)
        choices = [SampledToken(reached[at], found[at].token_id, bests[at] - log_total)]
    else:
        draws = [0.0 if each is None else each.random() for each in request.random_sources]
        picks = _pick(list(zip(rows, reached, offsets, strict=True)), request.sampling, draws)
        choices = [SampledToken(reached[member], token_id, score - log_total) for member, token_id, score in picks]
    ids = np.array([each.token_id for each in found])
    scores = CrossingScores(np.array(log_masses), ids, np.array(bests)) if request.wants_scores else None
    return SampleResult(tuple(choices), scores=scores)


def find_row(node: int | None) -> int:
    """A node's index among the rows of its tree; the chain's end comes first."""
    return 0 if node is None else node + 1


def _weigh_paths(request: SampleRequest) -> tuple[dict[int | None, float], dict[int | None, tuple[int, ...]]]:
    """Returns the log probability of the path to each node, and the branches on it that have no rows, itself included.

    None is the chain's end. The probability is a bound if a row on the path is missing.
    """
    assert request.rows[0] is not None, "the chain's end is always forwarded"
    log_probs: dict[int | None, float] = {None: 0.0}
    missing: dict[int | None, tuple[int, ...]] = {None: ()}
    for branch, (token_id, parent) in enumerate(zip(request.tree.branch_ids, request.tree.parents, strict=True)):
        above = request.rows[find_row(parent)]
        log_prob = 0.0 if above is None else above.find_logit(token_id) - above.log_total
        log_probs[branch] = log_probs[parent] + log_prob
        missing[branch] = missing[parent] + (() if request.rows[branch + 1] is not None else (branch,))
    return log_probs, missing


def _pick(
    members: Sequence[tuple[LogitRow, Crossing, float]], sampling: Sampling, draws: Sequence[float]
) -> list[tuple[int, int, float]]:
    """Picks among the tokens that may follow some crossings: for each, its row and an offset of its logits.

    `draws`: a number from 0 to 1 for each pick. Samples by `sampling`; the most likely ones, in order, if it is greedy.
    Of equally likely tokens, those of earlier crossings come first, then those with smaller ids. Returns the member,
    the token and its logit with the offset. If fewer tokens may follow, there are fewer picks.
    """
    logits = [row.to_host() for row, _, _ in members]
    allowed = [row.tokens.find_ids(crossing) for row, crossing, _ in members]
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


class NumpyRow(LogitRow):
    """A row on the host.

    The sorted vocabulary makes the tokens that may follow a slice, so nothing of the vocabulary's size is masked.
    """

    __slots__ = ()

    @property
    def log_total(self) -> float:
        """See `LogitRow`."""
        if self._log_total is None:
            self._log_total = log_sum_exp(self.logits)
        return self._log_total

    def find_best(self, crossing: Crossing) -> BestToken:
        """See `LogitRow`."""
        ids: _Ids | None = self.tokens.find_ids(crossing)
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
        logits: _Logits = self.logits
        return logits


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
