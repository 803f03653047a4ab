"""The choice of the next token on a GPU, for many sequences at once.

A scorer reads the logits: it has the mass and the best token of each crossing of a covering, and draws. Here the paths
are added and the choice is made. The log-mass of a crossing is log P(path) + the log-sum-exp of the log-probabilities
of the tokens that may follow there: the probability of all continuations that leave the healed bytes through this
crossing (Vieira et al. 2025, section 3.4).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from inference.errors import ModelError
from inference.model.language_model import Choice, CrossingScores, SampleRequest, SampleResult
from inference.model.node_weights import NodeWeights, find_needed
from inference.model.pytorch.choice.draw_source import DrawSource, count_draws
from inference.model.pytorch.choice.inquiry import Asked, Inquiry
from inference.model.pytorch.choice.sorted_head import SortedRequest, choose_sorted
from inference.model.pytorch.scoring.batch import Scorer, Scores, find_scores
from inference.model.pytorch.scoring.token_ranks import TokenRanks
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie

_Floats = npt.NDArray[np.float64]


class TorchSampler:
    """Chooses tokens among those that a scorer found, for many sequences at once."""

    def __init__(self, trie: Trie, hot_prefixes: HotPrefixCache, ranks: TokenRanks, scorer: Scorer) -> None:
        self._trie = trie
        self._hot_prefixes = hot_prefixes
        self._ranks = ranks
        self._scorer = scorer

    def new_random_source(self, seed: int | None) -> DrawSource:
        """A source for one candidate. `None` seeds it from the system."""
        return DrawSource(seed)

    @torch.inference_mode()
    def build_rows(self, logits: torch.Tensor) -> list[torch.Tensor]:
        """A row for each line of `logits`, [num_rows, vocab_size], device, of the same type. Rows own their memory."""
        if len(logits) == 1 and logits.is_contiguous() and logits.untyped_storage().nbytes() == logits.nbytes:
            return [logits[0]]
        lines = logits.unbind()
        rows = [torch.empty_like(line, memory_format=torch.contiguous_format) for line in lines]
        if rows:
            torch._foreach_copy_(rows, lines)  # one launch for all of them
        return rows

    @torch.inference_mode()
    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request, whose rows are tensors of `build_rows`.

        Raises ModelError if logits are infinite or no numbers: a choice among them would be arbitrary.
        """
        if not requests:
            return []
        inquiry = Inquiry(self._trie, self._hot_prefixes, self._ranks)
        asked = [inquiry.add(request) for request in requests]
        batch = inquiry.build_batch()
        scores = find_scores(self._scorer, batch)
        if not np.isfinite(scores.log_totals).all():
            raise ModelError("the model's logits are infinite or no numbers: its weights are damaged or too large")
        scored = [_ScoredRequest.build(each, scores) for each in asked]
        unsorted = {
            index: SortedRequest(each.asked, each.offsets) for index, each in enumerate(scored) if each.needs_order
        }
        ordered = dict(zip(unsorted, choose_sorted(list(unsorted.values()), batch, self._ranks), strict=True))
        return [_decide(each, scores, ordered.get(index, ())) for index, each in enumerate(scored)]


@dataclass(frozen=True, slots=True)
class _ScoredRequest:
    """A request with the probabilities of its crossings, of those whose paths were read."""

    asked: Asked
    weights: NodeWeights
    offsets: _Floats  # [num_crossings] log P(path) - log_total: added to a logit, it gives log P
    log_masses: _Floats  # [num_crossings]
    best_log_probs: _Floats  # [num_crossings]
    best_ids: npt.NDArray[np.int64]  # [num_crossings]

    @classmethod
    def build(cls, asked: Asked, scores: Scores) -> "_ScoredRequest":
        weights = asked.weigh(scores)
        own = slice(asked.first_question, asked.first_question + len(asked.crossings))
        offsets = np.array([weights.find_log_prob(crossing) for crossing in asked.crossings]) - scores.log_totals[own]
        masses, bests = scores.log_masses[own] + offsets, scores.best_logits[own] + offsets
        return cls(asked, weights, offsets, masses, bests, scores.best_ids[own])

    @property
    def needs_order(self) -> bool:
        """True if the choices need sorted tokens, and all crossings were read."""
        request = self.asked.request
        is_complete = len(self.asked.crossings) == len(request.crossings)
        if request.sampling.is_greedy:
            return is_complete and len(request.random_sources) > 1
        return is_complete and not math.isclose(request.sampling.top_p, 1.0)


def _decide(scored: _ScoredRequest, scores: Scores, ordered: tuple[Choice, ...]) -> SampleResult:
    """`ordered`: the choices, if they need sorted tokens."""
    asked, request = scored.asked, scored.asked.request
    best = int(scored.best_log_probs.argmax()) if asked.crossings else None
    needed = find_needed(request, scored.weights, -math.inf if best is None else float(scored.best_log_probs[best]))
    if needed:
        return SampleResult((), needed)
    assert best is not None, "if nothing more is needed, a crossing was read"
    if scored.needs_order:
        choices = ordered
    elif request.sampling.is_greedy:
        choices = (Choice(asked.crossings[best], int(scored.best_ids[best])),)
    else:
        choices = _find_drawn(scored, scores)
    if not request.sampling.is_greedy:
        count_draws(request.random_sources)
    told = CrossingScores(scored.log_masses, scored.best_ids, scored.best_log_probs) if request.wants_scores else None
    return SampleResult(choices, (), told, asked.num_hot_hits, asked.num_hot_misses)


def _find_drawn(scored: _ScoredRequest, scores: Scores) -> tuple[Choice, ...]:
    """The choice of each random source, from all paths and tokens together."""
    asked, request = scored.asked, scored.asked.request
    shape = len(asked.crossings), len(request.random_sources)
    own = slice(asked.first_draw, asked.first_draw + shape[0] * shape[1])
    noisy = scores.draw_scores[own].reshape(shape) + scored.best_log_probs[:, None] / request.sampling.temperature
    ids = scores.drawn_ids[own].reshape(shape)
    return tuple(
        Choice(asked.crossings[at], int(ids[at, draw])) for draw, at in enumerate(noisy.argmax(axis=0).tolist())
    )
