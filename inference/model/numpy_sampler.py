"""The choice of the next token on the CPU: exact masses over the intervals of the crossings only.

Log-mass of a crossing: log P(path) + log of the probability of all tokens that may follow there (Vieira et al. 2025,
section 3.4). The sorted vocabulary makes these tokens a slice, so nothing of the vocabulary's size is masked. Where any
token may follow, the probabilities sum to one, and a greedy choice needs the greatest logit only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference.healing.covering import Crossing, Rule, find_allowed
from inference.model.language_model import Choice, CrossingScores, SampleRequest, SampleResult
from inference.model.path_log_probs import PathLogProbs, find_needed, find_row, log_sum_exp, score_paths, sum_masses
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_Ids = npt.NDArray[np.int32]
_Logits = npt.NDArray[np.float32]


class NumpyRow:
    """The next-token logits after one node."""

    __slots__ = ("_log_total", "logits")

    def __init__(self, logits: _Logits) -> None:
        """`logits`: [vocab_size], -inf for padding rows."""
        self.logits = logits
        self._log_total: float | None = None

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self.logits.nbytes

    @property
    def log_total(self) -> float:
        """The logarithm of the sum of the exponentials. Computed on first use."""
        if self._log_total is None:
            self._log_total = log_sum_exp(self.logits)
        return self._log_total


@dataclass(frozen=True, slots=True)
class _Allowed:
    """The tokens that may follow at a crossing, with the logarithms of their probabilities."""

    ids: _Ids | None  # None: all, in their order
    log_probs: npt.NDArray[np.float64] | _Logits  # relative to the crossing's node, plus `offset`
    offset: float

    def find_best(self) -> tuple[int, float]:
        """Of equally likely tokens, the one with the smallest id: rounded logits are often equal."""
        if not self.log_probs.size:
            return -1, -math.inf
        at = int(self.log_probs.argmax())
        best = self.log_probs[at]
        token_id = at if self.ids is None else int(self.ids[self.log_probs == best].min())
        return token_id, float(best) + self.offset

    @property
    def log_mass(self) -> float:
        """The logarithm of the probability of all of them, with the path before them."""
        return log_sum_exp(self.log_probs) + self.offset


class NumpySampler:
    """Chooses tokens for one request at a time."""

    def __init__(self, vocabulary: Vocabulary, trie: Trie) -> None:
        self._trie = trie
        self._hot_prefixes = HotPrefixCache(trie)
        # The rows of the head that are no tokens.
        self._padding = np.setdiff1d(np.flatnonzero(trie.rank == trie.num_tokens), sorted(vocabulary.special_ids))

    def build_rows(self, logits: _Logits) -> list[NumpyRow]:
        """A row for each line of `logits`, [num_rows, vocab_size]; it may be overwritten. Rows own their memory."""
        if self._padding.size:
            logits[:, self._padding] = -np.inf
        return [NumpyRow(line.copy()) for line in logits]

    def copy_logits(self, rows: Sequence[NumpyRow]) -> _Logits:
        """The logits of some rows, [num_rows, vocab_size]."""
        return np.stack([row.logits for row in rows])

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request, whose rows are NumpyRows."""
        return [self._choose(request) for request in requests]

    def _choose(self, request: SampleRequest) -> SampleResult:
        rows = request.rows
        if request.wants_best and len(request.crossings) == 1 and request.crossings[0] == _ANY:
            token_id = int(rows[0].logits.argmax())
            return SampleResult((Choice(_ANY, token_id, float(rows[0].logits[token_id]) - rows[0].log_total),))
        weights = score_paths(request, lambda row, token: float(rows[row].logits[token]) - rows[row].log_total)
        allowed = [self._find_allowed(request, weights, crossing) for crossing in request.crossings]
        bests = [(-1, -math.inf) if each is None else each.find_best() for each in allowed]
        best = max(range(len(bests)), key=lambda index: bests[index][1])
        needed = find_needed(request, weights, bests[best][1])
        if needed:
            return SampleResult((), needed)
        read = [each for each in allowed if each is not None]
        log_total = sum_masses(weights, [each.log_mass for each in read])
        if request.sampling.is_greedy and len(request.random_sources) == 1:
            token_id, log_prob = bests[best]
            choices: tuple[Choice, ...] = (Choice(request.crossings[best], token_id, log_prob - log_total),)
        else:
            choices = _draw(request, read, log_total)
        return SampleResult(choices, scores=_build_scores(read, bests) if request.wants_scores else None)

    def _find_allowed(self, request: SampleRequest, weights: PathLogProbs, crossing: Crossing) -> _Allowed | None:
        """The tokens that may follow; None if a row of the path is missing."""
        if weights.missing[crossing.node]:
            return None
        row: NumpyRow = request.rows[find_row(crossing.node)]
        offset = weights.log_probs[crossing.node] - row.log_total
        ids = self._find_ids(crossing)
        return _Allowed(ids, row.logits if ids is None else row.logits[ids], offset)

    def _find_ids(self, crossing: Crossing) -> _Ids | None:
        if not crossing.remaining_bytes:
            return None
        if crossing.rule is Rule.SPELL:
            return self._hot_prefixes.find(crossing.remaining_bytes)
        (lo, hi), _ = find_allowed(self._trie, crossing)
        return self._trie.order[lo:hi]


_ANY = Crossing(None, b"", Rule.EXTEND)


def _build_scores(allowed: list[_Allowed], bests: list[tuple[int, float]]) -> CrossingScores:
    return CrossingScores(
        np.array([each.log_mass for each in allowed]),
        np.array([token_id for token_id, _ in bests]),
        np.array([log_prob for _, log_prob in bests]),
    )


def _draw(request: SampleRequest, allowed: list[_Allowed], log_total: float) -> tuple[Choice, ...]:
    """One choice for each random source, from all paths and tokens together: sampled, or the most likely in order.

    Greedy requests get fewer choices if fewer tokens may follow. Of equally likely tokens, those of earlier crossings
    come first, then those with smaller ids.
    """
    owners = np.repeat(np.arange(len(allowed)), [each.log_probs.size for each in allowed])
    ids = np.concatenate([np.arange(each.log_probs.size) if each.ids is None else each.ids for each in allowed])
    scores = np.concatenate([each.log_probs.astype(np.float64) + each.offset for each in allowed])
    if request.sampling.is_greedy:
        num_allowed = int(np.isfinite(scores).sum())
        picks = np.lexsort((ids, owners, -scores))[: min(len(request.random_sources), num_allowed)].tolist()
    else:
        totals = _accumulate(scores / request.sampling.temperature, request.sampling.top_p)
        picks = [_draw_one(totals, source) for source in request.random_sources]
    return tuple(
        [Choice(request.crossings[owners[pick]], int(ids[pick]), float(scores[pick]) - log_total) for pick in picks]
    )


def _accumulate(scores: npt.NDArray[np.float64], top_p: float) -> npt.NDArray[np.float64]:
    """The running sum of the probabilities of the fewest most likely members that together reach `top_p`."""
    probs = np.exp(scores - scores.max())
    probs /= probs.sum()
    if not math.isclose(top_p, 1.0):
        order = np.argsort(-probs, kind="stable")
        ordered = probs[order]
        probs[order[np.cumsum(ordered) - ordered >= top_p]] = 0.0
    return np.cumsum(probs)


def _draw_one(totals: npt.NDArray[np.float64], source: np.random.Generator | None) -> int:
    assert source is not None, "samples have a source each"
    return int(np.searchsorted(totals, source.random() * totals[-1], side="right"))


class NumpyModel:
    """What models on the host have in common: rows are NumpyRows, and NumPy chooses among them."""

    def __init__(self, sampler: NumpySampler) -> None:
        self._sampler = sampler

    def copy_logits(self, rows: Sequence[NumpyRow]) -> _Logits:
        """See `LanguageModel`."""
        return self._sampler.copy_logits(rows)

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """See `LanguageModel`."""
        return self._sampler.choose(requests)
