"""The choice of the next token on a GPU, for many sequences at once.

A scorer reads the logits: it has the mass and the best token of each crossing of a covering, and draws. Here the paths
are added and the choice is made. The log-mass of a crossing is log P(path) + the log-sum-exp of the log-probabilities
of the tokens that may follow there: the probability of all continuations that leave the healed bytes through this
crossing (Vieira et al. 2025, section 3.4).

Several of the most likely tokens, or one among the likeliest that reach `top_p`, need sorted tokens: only the allowed
ones are sorted, on the device, and all such choices are copied to the host together.
"""

import math
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from inference.errors import MidtokenError, ModelError
from inference.healing.covering import Crossing, Rule, find_crossing_interval
from inference.model.language_model import Choice, CrossingScores, RandomSource, SampleRequest, SampleResult
from inference.model.numpy_sampler import NodeWeights, NumpySampler, find_needed, find_row, weigh_nodes
from inference.model.pytorch.device import refusing_when_out_of_memory
from inference.model.pytorch.scoring import (
    Batch,
    Draw,
    Edge,
    Level,
    PlainScorer,
    Question,
    Scorer,
    Scores,
    TokenRanks,
    build_batch,
    build_uniforms,
    check_scorer,
    find_scores,
)
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary

_NUM_SEEDS = 2**63


class DrawSource:
    """A random source. The same seed gives the same draws."""

    __slots__ = ("num_draws", "seed")

    def __init__(self, seed: int | None) -> None:
        """`None` seeds it from the system."""
        self.seed = secrets.randbelow(_NUM_SEEDS) if seed is None else seed % _NUM_SEEDS
        self.num_draws = 0  # those that became choices


def list_offsets(sources: Sequence[RandomSource | None]) -> Iterator[tuple[int, int]]:
    """The seed and the number of the next draw of each source. A source may be there several times."""
    counts: Counter[int] = Counter()
    for source in sources:
        assert isinstance(source, DrawSource), "TorchSampler.new_random_source made it"
        yield source.seed, source.num_draws + counts[id(source)]
        counts[id(source)] += 1


def count_draws(sources: Sequence[RandomSource | None]) -> None:
    """Counts a draw of each source. Draws whose results are not used are not counted, and are drawn again."""
    for source in sources:
        assert isinstance(source, DrawSource), "TorchSampler.new_random_source made it"
        source.num_draws += 1


_NO_TOKENS = Interval(0, 0)  # of a question that is asked for the row's total only


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and where its answers are."""

    request: SampleRequest
    crossings: tuple[Crossing, ...]  # those whose paths were read; a question each, in this order
    first_question: int
    first_draw: int  # those of the first crossing come first
    edges: dict[tuple[int, int], tuple[int, int]]  # (row of the request, token id) -> edge, question about the row
    num_hot_hits: int
    num_hot_misses: int

    def weigh(self, scores: Scores) -> NodeWeights:
        """The log-probabilities of the request's paths."""

        def find_log_prob(row: int, token_id: int) -> float:
            edge, question = self.edges[row, token_id]
            return float(scores.edge_logits[edge] - scores.log_totals[question])

        return weigh_nodes(self.request, find_log_prob)


class Inquiry:
    """Collects the questions of several requests."""

    def __init__(self, trie: Trie, hot_prefixes: HotPrefixCache, ranks: TokenRanks) -> None:
        self._trie = trie
        self._hot_prefixes = hot_prefixes
        self._ranks = ranks
        self._rows: list[torch.Tensor] = []
        self._questions: list[Question] = []
        self._draws: list[Draw] = []
        self._edges: list[Edge] = []

    def add(self, request: SampleRequest) -> Asked:
        """Adds the questions of a request, whose rows are tensors."""
        places = {}  # row of the request -> row of the batch
        for index, row in enumerate(request.rows):
            if row is not None:
                places[index] = len(self._rows)
                self._rows.append(row)
        num_hits, num_misses = self._hot_prefixes.num_hits, self._hot_prefixes.num_misses
        first_question, first_draw = len(self._questions), len(self._draws)
        crossings = tuple(_iter_reached(request))
        for stream, crossing in enumerate(crossings):
            self._add_crossing(request, places[find_row(crossing.node)], crossing, stream)
        questions = {find_row(crossing.node): first_question + index for index, crossing in enumerate(crossings)}
        return Asked(
            request,
            crossings,
            first_question,
            first_draw,
            self._add_edges(request, places, questions),
            self._hot_prefixes.num_hits - num_hits,
            self._hot_prefixes.num_misses - num_misses,
        )

    def build_batch(self) -> Batch:
        """All questions, on the device."""
        return build_batch(self._rows, self._questions, self._draws, self._edges, device=self._ranks.device)

    def _add_crossing(self, request: SampleRequest, place: int, crossing: Crossing, stream: int) -> None:
        sampling = request.sampling
        if not sampling.is_greedy:
            for seed, offset in list_offsets(request.random_sources):
                self._draws.append(Draw(len(self._questions), seed, offset, stream))
        interval, more_ids = self._find_allowed(crossing)
        scale = 0.0 if sampling.is_greedy else 1.0 / sampling.temperature
        self._questions.append(Question(place, interval, more_ids, scale))

    def _find_allowed(self, crossing: Crossing) -> tuple[Interval, tuple[int, ...]]:
        """The interval of the tokens that may follow, and those that may follow beside it."""
        if not crossing.remaining_bytes:
            return self._ranks.all_tokens, ()
        if crossing.rule is Rule.CROSS:
            return find_crossing_interval(self._trie, crossing.remaining_bytes), ()
        if crossing.rule is Rule.EXTEND:
            return self._trie.find_interval(crossing.remaining_bytes), ()
        allowed = self._hot_prefixes.allowed(crossing.remaining_bytes)
        return allowed.interval, allowed.ancestor_ids

    def _add_edges(
        self, request: SampleRequest, places: dict[int, int], questions: dict[int, int]
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """`questions`: one about each row with a crossing. Rows with an edge only get one too."""
        edges: dict[tuple[int, int], tuple[int, int]] = {}
        for token_id, parent in zip(request.tree.branch_ids, request.tree.parents, strict=True):
            row = find_row(parent)
            if row not in places:
                continue
            if row not in questions:
                questions[row] = len(self._questions)
                self._questions.append(Question(places[row], _NO_TOKENS))
            edges[row, token_id] = len(self._edges), questions[row]
            self._edges.append(Edge(places[row], token_id))
        return edges


def _iter_reached(request: SampleRequest) -> Iterator[Crossing]:
    """The crossings whose paths were read."""
    is_reached = [request.rows[0] is not None]
    for row, parent in zip(request.rows[1:], request.tree.parents, strict=True):
        is_reached.append(row is not None and is_reached[find_row(parent)])
    return (crossing for crossing in request.crossings if is_reached[find_row(crossing.node)])


@dataclass(frozen=True, slots=True)
class SortedRequest:
    """A request whose choices need sorted tokens."""

    asked: Asked
    offsets: npt.NDArray[np.float64]  # [num_crossings] log P(path) - log_total: added to a logit it gives log P


@torch.inference_mode()
def choose_sorted(
    sorted_requests: Sequence[SortedRequest], batch: Batch, ranks: TokenRanks
) -> list[tuple[Choice, ...]]:
    """The choices of each request. Of equally likely tokens, those of earlier crossings come first, then small ids."""
    if not sorted_requests:
        return []
    picked = [_pick(each, batch, ranks) for each in sorted_requests]
    host = torch.cat(picked, dim=1).cpu().numpy()
    ends = np.cumsum([each.shape[1] for each in picked])[:-1]
    choices = []
    for each, (scores, indices, token_ids) in zip(sorted_requests, np.split(host, ends, axis=1), strict=True):
        found = zip(scores, indices, token_ids, strict=True)
        crossings = each.asked.crossings
        choices.append(
            tuple(
                Choice(crossings[int(index)], int(token_id)) for score, index, token_id in found if np.isfinite(score)
            )
        )
    return choices


def _pick(each: SortedRequest, batch: Batch, ranks: TokenRanks) -> torch.Tensor:
    """[3, num_choices] device: log P, the index of the crossing, and the token id."""
    scores, indices, token_ids = (torch.cat(parts) for parts in zip(*_iter_allowed(each, batch, ranks), strict=True))
    request = each.asked.request
    num_choices = len(request.random_sources)
    if request.sampling.is_greedy:
        places = scores.sort(descending=True, stable=True).indices[:num_choices]
    else:
        draws = batch.draws[each.asked.first_draw :][:num_choices]
        places = _draw(scores / request.sampling.temperature, request.sampling.top_p, draws)
    return torch.stack([scores[places], indices[places].to(scores), token_ids[places].to(scores)])


def _iter_allowed(
    each: SortedRequest, batch: Batch, ranks: TokenRanks
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """For each crossing: log P(path + token) of the allowed tokens, the crossing's index for each, and their ids."""
    for index, offset in enumerate(each.offsets.tolist()):
        place = each.asked.first_question + index
        question = batch.questions[place]
        token_ids = ranks.find_ids(question.interval, batch.find_more_ids(place))
        logits = batch.rows[question.row][token_ids]
        scores = (logits if logits.dtype == torch.float64 else logits.float()) + offset
        yield scores, torch.full_like(token_ids, index), token_ids


def _draw(scores: torch.Tensor, top_p: float, draws: torch.Tensor) -> torch.Tensor:
    """[num_draws] places in `scores`, drawn among the fewest most likely ones that together reach `top_p`."""
    probs, order = torch.softmax(scores, dim=0).sort(descending=True, stable=True)
    totals = probs.cumsum(0)
    totals = probs.masked_fill(totals - probs >= top_p, 0.0).cumsum(0)
    _, seeds, offsets, _ = draws.T
    uniforms = build_uniforms(seeds, torch.zeros_like(seeds), offsets, torch.zeros_like(seeds), Level.HEAD)
    places = torch.searchsorted(totals, uniforms.to(totals) * totals[-1])
    return order[places]


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

    def copy_logits(self, rows: Sequence[torch.Tensor]) -> npt.NDArray[np.float32]:
        """The logits of some rows on the host, [num_rows, vocab_size]. Raises ModelError as `choose`."""
        logits: npt.NDArray[np.float32] = torch.stack(list(rows)).float().cpu().numpy()
        _check_finite(logits)
        return logits

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
        _check_finite(scores.log_totals)
        scored = [_ScoredRequest.build(each, scores) for each in asked]
        unsorted = {
            index: SortedRequest(each.asked, each.offsets) for index, each in enumerate(scored) if each.needs_order
        }
        ordered = dict(zip(unsorted, choose_sorted(list(unsorted.values()), batch, self._ranks), strict=True))
        return [_decide(each, scores, ordered.get(index, ())) for index, each in enumerate(scored)]


def _check_finite(numbers: npt.NDArray[Any]) -> None:
    if not np.isfinite(numbers).all():
        raise ModelError("the model's logits are infinite or no numbers: its weights are damaged or too large")


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


class Sampler(Protocol):
    """Chooses tokens from rows that it has built."""

    def new_random_source(self, seed: int | None) -> RandomSource:
        """A random source for one candidate. `None` seeds it from the system."""
        ...

    def build_rows(self, logits: torch.Tensor) -> Sequence[Any]:
        """A row for each line of `logits`, [num_rows, vocab_size], device."""
        ...

    def copy_logits(self, rows: Sequence[Any]) -> npt.NDArray[np.float32]:
        """The logits of some rows on the host, [num_rows, vocab_size]."""
        ...

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request."""
        ...


class _HostSampler(NumpySampler):
    """Chooses with NumPy, from tensors of the CPU."""

    def build_rows(self, logits: torch.Tensor) -> Sequence[Any]:  # type: ignore[override]  # here they are tensors
        return super().build_rows(logits.float().numpy())


def build_sampler(device: torch.device, dtype: torch.dtype, vocabulary: Vocabulary, trie: Trie) -> Sampler:
    """The sampler for logits of the type `dtype` on a device: NumPy on the CPU.

    Raises ModelError if the kernels that choose tokens on the device do not work.
    """
    hot_prefixes = HotPrefixCache(trie)
    if device.type == "cpu":
        return _HostSampler(vocabulary, hot_prefixes, trie)
    ranks = TokenRanks(vocabulary, trie, device)
    return TorchSampler(trie, hot_prefixes, ranks, build_scorer(ranks, dtype))


def build_scorer(ranks: TokenRanks, dtype: torch.dtype) -> Scorer:
    """The scorer for rows of the type `dtype`, on the device of `ranks`.

    Raises ModelError if the device's kernels cannot be used or give other answers than torch's own operations, and
    OverloadedError.
    """
    plain = PlainScorer(ranks)
    if ranks.device.type != "cuda" or dtype == torch.float64:  # for torch, ROCm is cuda too
        return plain
    try:
        # Here, because the packages of torch for other devices come without triton.
        from inference.model.pytorch.choice_kernel import KernelScorer

        kernel = KernelScorer(ranks)
        with refusing_when_out_of_memory("a check of the kernels that choose tokens"):
            check_scorer(kernel, plain, ranks, dtype)
    except MidtokenError:
        raise
    except Exception as error:  # the compiler of kernels raises undocumented exceptions
        raise ModelError(
            f"the kernels score_chunks and merge_chunks cannot be used on {ranks.device}: {error}"
        ) from error
    return kernel
