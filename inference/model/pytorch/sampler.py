"""The choice of the next token on a GPU, for many sequences at once.

A scorer reads the logits: it has the mass and the best token of each crossing of a covering, and draws. Here the paths
are added and the choice is made. The log-mass of a crossing is log P(path) + the log-sum-exp of the log-probabilities
of the tokens that may follow there: the probability of all continuations that leave the healed bytes through this
crossing (Vieira et al. 2025, section 3.4).

Several of the most likely tokens, or one among the likeliest that reach `top_p`, need sorted tokens: their rows are
copied to the host, where NumPy chooses.
"""

import dataclasses
import math
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
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
from inference.model.path_weights import find_needed, find_row, sum_masses, weigh_nodes
from inference.model.pytorch.device import refusing_when_out_of_memory
from inference.model.pytorch.scoring import (
    Draw,
    Edge,
    RowQuestion,
    RowScores,
    Scorer,
    TokenRanks,
    build_batch,
    find_scores,
)
from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary

_NUM_SEEDS = 2**63
_NO_TOKENS = Interval(0, 0)  # of a question that is asked for the row's total only


class DrawSource:
    """The random source of a candidate: the same seed gives the same draws, which are computed on the device."""

    __slots__ = ("num_draws", "seed")

    def __init__(self, seed: int | None) -> None:
        """`None` seeds it from the system."""
        self.seed = secrets.randbelow(_NUM_SEEDS) if seed is None else seed % _NUM_SEEDS
        self.num_draws = 0  # those that became choices: others are drawn again


class TorchSampler:
    """Chooses tokens among those that a scorer found, for many sequences at once."""

    def __init__(self, vocabulary: Vocabulary, trie: Trie, ranks: TokenRanks, scorer: Scorer) -> None:
        self._host = HostSampler(vocabulary, trie)
        self._trie = trie
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

    def copy_logits(self, rows: Sequence[torch.Tensor]) -> npt.NDArray[np.float32]:
        """The logits of some rows on the host, [num_rows, vocab_size]."""
        found: npt.NDArray[np.float32] = torch.stack(list(rows)).float().cpu().numpy()
        return found

    @torch.inference_mode()
    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request, whose rows are tensors of `build_rows`."""
        results = iter(self._choose_scored([request for request in requests if not _needs_order(request)]))
        return [self._choose_ordered(request) if _needs_order(request) else next(results) for request in requests]

    def _choose_ordered(self, request: SampleRequest) -> SampleResult:
        logits = torch.stack([row for row in request.rows if row is not None]).float()
        copies = iter(self._host.build_rows(logits))
        rows = [None if row is None else next(copies) for row in request.rows]
        sources = request.random_sources
        if not request.sampling.is_greedy:
            sources = tuple(np.random.default_rng(numbers) for numbers in _list_draws(request))
        [result] = self._host.choose([dataclasses.replace(request, rows=rows, random_sources=sources)])
        if result.choices:
            _count_draws(request)
        return result

    def _choose_scored(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        if not requests:
            return []
        questions = _Questions()
        scored = [self._ask(request, questions) for request in requests]
        batch = build_batch(
            questions.rows, questions.questions, questions.draws, questions.edges, device=self._ranks.device
        )
        scores = find_scores(self._scorer, batch)
        for each in scored:
            each.take_answers(scores)
        drawn = [each.find_drawn(scores) for each in scored]
        logits = [each.get_logit(*pair) for each, pairs in zip(scored, drawn, strict=True) for pair in pairs]
        told = iter(torch.stack(logits).float().tolist() if logits else [])
        return [
            each.build_result([(*pair, next(told)) for pair in pairs])
            for each, pairs in zip(scored, drawn, strict=True)
        ]

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
    draws: list[Draw] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


class _ScoredRequest:
    """One request: where its answers are, the probabilities of its crossings, and its choices."""

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
        self.first_question, self.first_draw = len(questions.questions), len(questions.draws)
        self._totals: dict[int, int] = {}  # row of the request -> a question about it
        for stream, (crossing, tokens) in enumerate(zip(crossings, allowed, strict=True)):
            self._ask_crossing(questions, find_row(crossing.node), stream, tokens)
        self._edges: dict[tuple[int, int], int] = {}  # row of the request, token id
        for token_id, parent in zip(request.tree.branch_ids, request.tree.parents, strict=True):
            self._ask_edge(questions, find_row(parent), token_id)

    def _ask_crossing(
        self, questions: _Questions, row: int, stream: int, allowed: tuple[Interval, tuple[int, ...]]
    ) -> None:
        sampling, question = self.request.sampling, len(questions.questions)
        if not sampling.is_greedy:
            questions.draws.extend(Draw(question, seed, offset, stream) for seed, offset in _list_draws(self.request))
        self._totals[row] = question
        scale = 0.0 if sampling.is_greedy else 1.0 / sampling.temperature
        questions.questions.append(RowQuestion(self._places[row], *allowed, scale))

    def _ask_edge(self, questions: _Questions, row: int, token_id: int) -> None:
        if row not in self._places:
            return
        if row not in self._totals:
            self._totals[row] = len(questions.questions)
            questions.questions.append(RowQuestion(self._places[row], _NO_TOKENS))
        self._edges[row, token_id] = len(questions.edges)
        questions.edges.append(Edge(self._places[row], token_id))

    def take_answers(self, scores: RowScores) -> None:
        """Takes the request's answers. The rest can be asked for then."""

        def find_log_prob(row: int, token_id: int) -> float:
            return float(scores.edge_logits[self._edges[row, token_id]] - scores.log_totals[self._totals[row]])

        own = slice(self.first_question, self.first_question + len(self.crossings))
        self._weights = weigh_nodes(self.request, find_log_prob)
        paths = np.array([self._weights.log_probs[crossing.node] for crossing in self.crossings])
        # For each crossing: log P(path) - log_total. Added to a logit, it gives log P.
        self.offsets: npt.NDArray[np.float64] = paths - scores.log_totals[own]
        self._scores = CrossingScores(
            scores.log_masses[own] + self.offsets, scores.best_ids[own], scores.best_logits[own] + self.offsets
        )
        best = float(self._scores.best_log_probs.max(initial=-math.inf))
        self._needed = find_needed(self.request, self._weights, best)

    def build_result(self, drawn: Sequence[tuple[int, int, float]]) -> SampleResult:
        """The choices, which are counted as draws, or the branches that must be read first. `drawn`: with logits."""
        if self._needed:
            return SampleResult((), self._needed)
        request, log_probs = self.request, self._scores.best_log_probs
        log_total = sum_masses(self._weights, self._scores.log_masses)
        if request.sampling.is_greedy:
            best = int(log_probs.argmax())
            token_id, log_prob = int(self._scores.best_ids[best]), float(log_probs[best]) - log_total
            choices: tuple[Choice, ...] = (Choice(self.crossings[best], token_id, log_prob),)
        else:
            choices = tuple(
                Choice(self.crossings[at], token_id, logit + float(self.offsets[at]) - log_total)
                for at, token_id, logit in drawn
            )
        _count_draws(request)
        return SampleResult(choices, (), self._scores if request.wants_scores else None)

    def find_drawn(self, scores: RowScores) -> list[tuple[int, int]]:
        """The crossing and token of each random source, drawn from all paths and tokens together.

        Nothing is drawn if the choice is greedy or branches must be read first.
        """
        if self.request.sampling.is_greedy or self._needed:
            return []
        shape = len(self.crossings), len(self.request.random_sources)
        own = slice(self.first_draw, self.first_draw + shape[0] * shape[1])
        noisy = scores.draw_scores[own].reshape(shape)
        noisy = noisy + self._scores.best_log_probs[:, None] / self.request.sampling.temperature
        ids = scores.drawn_ids[own].reshape(shape)
        return [(at, int(ids[at, draw])) for draw, at in enumerate(noisy.argmax(axis=0).tolist())]

    def get_logit(self, at: int, token_id: int) -> torch.Tensor:
        """The logit of a token at a crossing, device."""
        row: torch.Tensor = self.request.rows[find_row(self.crossings[at].node)]
        return row[token_id]


def _needs_order(request: SampleRequest) -> bool:
    """True if the choices need sorted tokens."""
    sampling = request.sampling
    return len(request.random_sources) > 1 if sampling.is_greedy else not math.isclose(sampling.top_p, 1.0)


def _list_draws(request: SampleRequest) -> Iterator[tuple[int, int]]:
    """The seed and the number of the next draw of each source, which may be there several times."""
    counts: Counter[int] = Counter()
    for source in request.random_sources:
        assert isinstance(source, DrawSource), "TorchSampler.new_random_source made it"
        yield source.seed, source.num_draws + counts[id(source)]
        counts[id(source)] += 1


def _count_draws(request: SampleRequest) -> None:
    for source in request.random_sources:
        if isinstance(source, DrawSource):
            source.num_draws += 1


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
