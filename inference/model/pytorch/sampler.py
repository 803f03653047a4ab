"""The choice of the next token on a GPU, for many sequences at once.

A scorer reads the logits: it has the mass and the best token of each crossing of a covering. Here the paths are added,
and the choice is made. The log-mass of a crossing is log P(path) + the log-sum-exp of the log-probabilities of the
tokens that may follow there: the probability of all continuations that leave the healed bytes through this crossing
(Vieira et al. 2025, section 3.4).

For samples, and for several of the most likely tokens, rows are copied to the host, where NumPy chooses.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from inference.errors import MidtokenError, ModelError
from inference.healing.covering import Crossing, Rule, find_allowed
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Choice, CrossingScores, SampleRequest, SampleResult, Sampling
from inference.model.numpy_sampler import NumpySampler
from inference.model.path_log_probs import find_needed, find_row, score_paths, sum_masses
from inference.model.pytorch.device import refusing_when_out_of_memory
from inference.model.pytorch.scoring import (
    Edge,
    RowQuestion,
    RowScores,
    Scorer,
    TokenRanks,
    build_batch,
    compute_scores,
)
from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary

_NO_TOKENS = Interval(0, 0)  # of a question that is asked for the row's total only


class TorchSampler:
    """Chooses tokens among those that a scorer found, for many sequences at once."""

    def __init__(self, vocabulary: Vocabulary, trie: Trie, ranks: TokenRanks, scorer: Scorer) -> None:
        self._host = HostSampler(vocabulary, trie)
        self._trie = trie
        self._ranks = ranks
        self._scorer = scorer

    @torch.inference_mode()
    def build_rows(self, logits: torch.Tensor) -> list[torch.Tensor]:
        """A row for each line of `logits`, [num_rows, vocab_size], device, of the same type. Rows own their memory."""
        return [line.clone(memory_format=torch.contiguous_format) for line in logits]

    def copy_logits(self, rows: Sequence[torch.Tensor]) -> npt.NDArray[np.float32]:
        """The logits of some rows on the host, [num_rows, vocab_size]."""
        found: npt.NDArray[np.float32] = torch.stack(list(rows)).float().cpu().numpy()
        return found

    @torch.inference_mode()
    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request, whose rows are tensors of `build_rows`."""
        results = iter(self._choose_best([request for request in requests if _wants_one(request)]))
        return [next(results) if _wants_one(request) else self._choose_on_host(request) for request in requests]

    def _choose_on_host(self, request: SampleRequest) -> SampleResult:
        copies = iter(self._host.build_rows(torch.stack([row for row in request.rows if row is not None])))
        rows = [None if row is None else next(copies) for row in request.rows]
        [result] = self._host.choose([dataclasses.replace(request, rows=rows)])
        return result

    def _choose_best(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        if not requests:
            return []
        questions = _Questions()
        scored = [self._ask(request, questions) for request in requests]
        batch = build_batch(questions.rows, questions.questions, questions.edges, device=self._ranks.device)
        scores = compute_scores(self._scorer, batch)
        return [each.build_result(scores) for each in scored]

    def _ask(self, request: SampleRequest, questions: "_Questions") -> "_ScoredRequest":
        """Adds the questions of a request."""
        crossings = _list_reached(request)
        return _ScoredRequest(request, crossings, [self._find_allowed(crossing) for crossing in crossings], questions)

    def _find_allowed(self, crossing: Crossing) -> tuple[Interval, tuple[int, ...]]:
        """The interval of the tokens that may follow, and those that may follow beside it."""
        return find_allowed(self._trie, crossing) if crossing.remaining_bytes else (self._ranks.all_tokens, ())


def _list_reached(request: SampleRequest) -> tuple[Crossing, ...]:
    """The crossings whose paths were read."""
    is_reached = [request.rows[0] is not None]
    for row, parent in zip(request.rows[1:], request.tree.parents, strict=True):
        is_reached.append(row is not None and is_reached[find_row(parent)])
    return tuple(crossing for crossing in request.crossings if is_reached[find_row(crossing.node)])


@dataclass(frozen=True, slots=True)
class _Questions:
    """What one choice asks a scorer, for all of its requests."""

    rows: list[torch.Tensor] = field(default_factory=list)
    questions: list[RowQuestion] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


class _ScoredRequest:
    """One request: where its answers are, and its choice."""

    def __init__(
        self,
        request: SampleRequest,
        crossings: Sequence[Crossing],  # those whose paths were read
        allowed: Sequence[tuple[Interval, tuple[int, ...]]],  # for each crossing
        questions: _Questions,
    ) -> None:
        """Adds the request's questions to `questions`."""
        self.request = request
        self.crossings = crossings
        known = [index for index, row in enumerate(request.rows) if row is not None]
        self._places = dict(zip(known, count(len(questions.rows)), strict=False))  # row of the request -> of the batch
        questions.rows.extend(request.rows[index] for index in known)
        self.first_question = len(questions.questions)
        self._totals: dict[int, int] = {}  # row of the request -> a question about it
        for crossing, tokens in zip(crossings, allowed, strict=True):
            row = find_row(crossing.node)
            self._totals[row] = len(questions.questions)
            questions.questions.append(RowQuestion(self._places[row], *tokens))
        self._edges: dict[tuple[int, int], int] = {}  # row of the request, token id
        for token_id, parent in zip(request.tree.branch_ids, request.tree.parents, strict=True):
            self._ask_edge(questions, find_row(parent), token_id)

    def _ask_edge(self, questions: _Questions, row: int, token_id: int) -> None:
        if row not in self._places:
            return
        if row not in self._totals:
            self._totals[row] = len(questions.questions)
            questions.questions.append(RowQuestion(self._places[row], _NO_TOKENS))
        self._edges[row, token_id] = len(questions.edges)
        questions.edges.append(Edge(self._places[row], token_id))

    def build_result(self, scores: RowScores) -> SampleResult:
        """The choice, or the branches that must be read first."""

        def find_log_prob(row: int, token_id: int) -> float:
            return float(scores.edge_logits[self._edges[row, token_id]] - scores.log_totals[self._totals[row]])

        own = slice(self.first_question, self.first_question + len(self.crossings))
        weights = score_paths(self.request, find_log_prob)
        paths = np.array([weights.log_probs[crossing.node] for crossing in self.crossings])
        offsets = paths - scores.log_totals[own]  # log P(path) - log_total; added to a logit, it gives log P
        found = CrossingScores(
            scores.log_masses[own] + offsets, scores.best_ids[own], scores.best_logits[own] + offsets
        )
        needed = find_needed(self.request, weights, float(found.best_log_probs.max(initial=-math.inf)))
        if needed:
            return SampleResult((), needed)
        best = int(found.best_log_probs.argmax())
        log_prob = float(found.best_log_probs[best]) - sum_masses(weights, found.log_masses)
        choice = Choice(self.crossings[best], int(found.best_ids[best]), log_prob)
        return SampleResult((choice,), (), found if self.request.wants_scores else None)


def _wants_one(request: SampleRequest) -> bool:
    """True if only the most likely token is asked for."""
    return request.sampling.is_greedy and len(request.random_sources) == 1


class HostSampler(NumpySampler):
    """Chooses with NumPy, from rows that are copied to the host."""

    def build_rows(self, logits: torch.Tensor) -> Sequence[Any]:  # type: ignore[override]  # here they are tensors
        """A row for each line of `logits`, [num_rows, vocab_size], device."""
        return super().build_rows(logits.float().cpu().numpy())


Sampler = TorchSampler | HostSampler

_SPREAD = 4.0  # standard deviation of the logits of the check; real ones have 2 to 5
_TOLERANCE = 1e-3  # in float32. Sums in another order differ by some 1e-6


def check_sampler(sampler: TorchSampler, host: HostSampler, trie: Trie, logits: torch.Tensor) -> None:
    """Compares choices among three rows of logits, device, with NumPy's. Raises ModelError if they differ."""
    rows, host_rows = sampler.build_rows(logits), host.build_rows(logits)
    data, branch_ids = trie.spell(int(trie.order[len(trie.order) // 2])), trie.order[[0, -1]].tolist()
    tree = TokenTree((0,), tuple(branch_ids), (None, 0))
    trials = [
        (Crossing(0, data[:1], Rule.CROSS), Crossing(None, b"", Rule.EXTEND)),
        (Crossing(0, 64 * data, Rule.EXTEND), Crossing(1, data, Rule.SPELL)),  # no token has so many bytes
        (Crossing(1, b"", Rule.EXTEND), Crossing(None, data[:1], Rule.EXTEND)),
    ]
    requests = [SampleRequest(tree, each, rows, Sampling(0.0, 1.0), wants_scores=True) for each in trials]
    expected = host.choose([dataclasses.replace(request, rows=host_rows) for request in requests])
    pairs = list(zip(sampler.choose(requests), expected, strict=True))
    faults = []
    for name in ("best_ids", "best_log_probs", "log_masses"):
        numbers = [[getattr(result.scores, name) for result in pair] for pair in pairs]
        faults += [f"its {name} are {a}, not {b}" for a, b in numbers if not np.allclose(a, b, 0, _TOLERANCE)]
    if faults:
        name = str(logits.dtype).removeprefix("torch.")
        raise ModelError(f"on {logits.device}, choices among {name} logits are wrong: {faults[-1]}")


def build_sampler(device: torch.device, dtype: torch.dtype, vocabulary: Vocabulary, trie: Trie) -> Sampler:
    """The sampler for logits of the type `dtype` on a device: on the host where there are no kernels that choose.

    Raises ModelError if the device's kernels cannot be used or give other answers than NumPy, and OverloadedError.
    """
    if device.type != "cuda" or dtype == torch.float64:  # for torch, ROCm is cuda too
        return HostSampler(vocabulary, trie)
    ranks = TokenRanks(vocabulary, trie, device)
    try:
        # Here, because the packages of torch for other devices come without triton.
        from inference.model.pytorch.choice_kernel import score_batch

        with refusing_when_out_of_memory("a check of the kernels that choose tokens"):
            logits = _SPREAD * torch.randn(3, ranks.num_logits, generator=torch.Generator().manual_seed(0))
            sampler = TorchSampler(vocabulary, trie, ranks, partial(score_batch, ranks))
            check_sampler(sampler, HostSampler(vocabulary, trie), trie, logits.to(dtype).to(device))
    except MidtokenError:
        raise
    except Exception as error:  # the compiler of kernels raises undocumented exceptions
        raise ModelError(f"the kernels score_chunks and merge_chunks cannot be used on {device}: {error}") from error
    return sampler
