"""The choice of the next token on a GPU: interval masks and exact masses, for many sequences at once.

Each crossing of a covering has a row of next-token log-probabilities, masked to the tokens that may follow there. Its
log-mass is log P(path) + logsumexp(row): the probability of all continuations that leave the healed bytes through this
crossing (Vieira et al. 2025, section 3.4).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from inference.healing.covering import Crossing, Rule, find_crossing_interval
from inference.model.language_model import Choice, CrossingScores, RandomSource, SampleRequest, SampleResult
from inference.model.node_weights import NodeWeights, find_needed, find_row, weigh_nodes
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request, and where its rows are among those of all requests."""

    request: SampleRequest
    places: list[int | None]  # for each node, the row in the stacked logits; None if it was not read
    weights: NodeWeights


@dataclass(slots=True)
class _Lookups:
    """Hits and misses of one request's lookups in the hot-prefix cache."""

    num_hits: int = 0
    num_misses: int = 0

    def count(self, *, was_hit: bool) -> None:
        self.num_hits += was_hit
        self.num_misses += not was_hit


class TorchSampler:
    """Chooses tokens under interval masks, for many sequences at once."""

    def __init__(self, vocabulary: Vocabulary, hot_prefixes: HotPrefixCache, trie: Trie, device: torch.device) -> None:
        self._hot_prefixes = hot_prefixes
        self._trie = trie
        self._device = device
        self._ranks = torch.tensor(trie.rank, device=device)  # [vocab_size] int32; special tokens are in no interval
        is_token = torch.tensor([bool(data) for data in vocabulary.token_bytes])
        is_token[sorted(vocabulary.special_ids)] = True
        self._is_token = is_token.to(device)  # [vocab_size] bool, device; False for padding rows

    def new_random_source(self, seed: int | None) -> torch.Generator:
        """A generator for one candidate. `None` seeds it from the system."""
        generator = torch.Generator(self._device)
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)
        return generator

    @torch.inference_mode()
    def build_rows(self, logits: torch.Tensor) -> list[torch.Tensor]:
        """A row for each line of `logits`, [num_rows, vocab_size], device. Rows own their memory."""
        return [line.clone() for line in logits.masked_fill(~self._is_token, -torch.inf)]

    @torch.inference_mode()
    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request, whose rows are tensors of `build_rows`."""
        if not requests:
            return []
        log_probs = torch.stack([row for request in requests for row in request.rows if row is not None])
        log_probs = log_probs.log_softmax(dim=-1)
        asked = _weigh(requests, log_probs)
        crossings = [
            (owner, crossing)
            for owner, each in enumerate(asked)
            for crossing in each.request.crossings
            if not each.weights.find_unread(crossing)
        ]
        places = [asked[owner].places[find_row(crossing.node)] for owner, crossing in crossings]
        scores = log_probs[places]  # [num_crossings, vocab_size]
        lookups = [_Lookups() for _ in requests]
        if any(crossing.remaining_bytes for _, crossing in crossings):
            scores = scores.masked_fill(~self._build_masks(crossings, lookups), -torch.inf)
        best, best_ids = scores.max(dim=-1)
        masses = torch.logsumexp(scores, dim=-1)
        host = torch.stack([best.double(), masses.double(), best_ids.double()]).cpu().numpy()
        owners = np.array([owner for owner, _ in crossings])
        results = []
        for owner, (each, looked_up) in enumerate(zip(asked, lookups, strict=True)):
            here = owners == owner
            own = [crossing for at, crossing in crossings if at == owner]
            paths = np.array([each.weights.find_log_prob(crossing) for crossing in own])
            read = _Read(own, host[0, here] + paths, host[1, here] + paths, host[2, here].astype(np.int64))
            joint = scores[torch.from_numpy(here).to(scores.device)], paths
            results.append(_decide(each, read, joint, looked_up))
        return results

    def _build_masks(self, crossings: list[tuple[int, Crossing]], lookups: list[_Lookups]) -> torch.Tensor:
        """[num_crossings, vocab_size] bool, device: the tokens that may follow at each crossing."""
        intervals = [_find_interval(self._trie, crossing) for _, crossing in crossings]
        bounds = torch.tensor([(interval.lo, interval.hi) for interval in intervals], device=self._device)
        masks = (self._ranks >= bounds[:, :1]) & (self._ranks < bounds[:, 1:])
        for row, (owner, crossing) in enumerate(crossings):
            if not crossing.remaining_bytes:
                masks[row] = True
            elif crossing.rule is Rule.SPELL:
                num_hits = self._hot_prefixes.num_hits
                allowed = self._hot_prefixes.allowed(crossing.remaining_bytes)
                masks[row, torch.tensor(allowed.ids, device=self._device)] = True
                lookups[owner].count(was_hit=self._hot_prefixes.num_hits > num_hits)
        return masks


@dataclass(frozen=True, slots=True)
class _Read:
    """The crossings of a request whose paths were read, and their scores on the host."""

    crossings: list[Crossing]
    bests: npt.NDArray[np.float64]
    masses: npt.NDArray[np.float64]
    ids: npt.NDArray[np.int64]


def _find_interval(trie: Trie, crossing: Crossing) -> Interval:
    return (
        find_crossing_interval(trie, crossing.remaining_bytes)
        if crossing.rule is Rule.CROSS
        else trie.find_interval(crossing.remaining_bytes)
    )


def _weigh(requests: Sequence[SampleRequest], log_probs: torch.Tensor) -> list[_Asked]:
    """The requests with the log-probabilities of their paths, which are copied to the host once."""
    places: list[list[int | None]] = []
    counts = accumulate((row is not None for request in requests for row in request.rows), initial=0)
    for request in requests:
        places.append([place if row is not None else None for row, place in zip(request.rows, counts, strict=False)])
    edges = [
        (own[find_row(parent)], token_id)
        for request, own in zip(requests, places, strict=True)
        for token_id, parent in zip(request.tree.branch_ids, request.tree.parents, strict=True)
        if own[find_row(parent)] is not None
    ]
    values = log_probs[[row for row, _ in edges], [token_id for _, token_id in edges]].tolist() if edges else []
    found: dict[tuple[int | None, int], float] = dict(zip(edges, values, strict=True))
    asked = []
    for request, own in zip(requests, places, strict=True):

        def find_log_prob(row: int, token_id: int, own: list[int | None] = own) -> float:
            return found[own[row], token_id]

        asked.append(_Asked(request, own, weigh_nodes(request, find_log_prob)))
    return asked


def _decide(
    asked: _Asked, read: _Read, joint: tuple[torch.Tensor, npt.NDArray[np.float64]], lookups: _Lookups
) -> SampleResult:
    request = asked.request
    best = int(read.bests.argmax()) if read.crossings else -1
    needed = find_needed(request, asked.weights, float(read.bests[best]) if read.crossings else -math.inf)
    if needed:
        return SampleResult((), needed)
    if request.sampling.is_greedy and len(request.random_sources) == 1:
        choices: tuple[Choice, ...] = (Choice(read.crossings[best], int(read.ids[best])),)
    else:
        scores, paths = joint
        choices = _draw(request, scores + torch.from_numpy(paths).to(scores)[:, None])
    scored = CrossingScores(read.masses, read.ids, read.bests) if request.wants_scores else None
    return SampleResult(choices, (), scored, lookups.num_hits, lookups.num_misses)


def _draw(request: SampleRequest, joint: torch.Tensor) -> tuple[Choice, ...]:
    """One choice for each random source, from all paths and tokens together: sampled, or the most likely in order.

    Greedy requests get fewer choices if fewer tokens may follow.

    `joint`: [num_crossings, vocab_size] log P(path + token), -inf for tokens that may not follow.
    """
    vocab_size = joint.shape[1]
    log_probs = joint.flatten()
    allowed = log_probs.isfinite().nonzero()[:, 0]  # indices into `log_probs`
    scores = log_probs[allowed].double()
    if request.sampling.is_greedy:
        picks = scores.topk(min(len(request.random_sources), len(scores))).indices.tolist()
    else:
        probs = _keep_top(torch.softmax(scores / request.sampling.temperature, dim=0), request.sampling.top_p)
        picks = [_draw_one(probs, source) for source in request.random_sources]
    indices = allowed[picks].tolist()
    return tuple(Choice(request.crossings[index // vocab_size], index % vocab_size) for index in indices)


def _draw_one(probs: torch.Tensor, source: RandomSource | None) -> int:
    assert isinstance(source, torch.Generator), "TorchSampler.new_random_source made it"
    return int(torch.multinomial(probs, 1, generator=source))


def _keep_top(probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """The probabilities of the fewest most likely tokens that together reach `top_p`; all others are zero."""
    if math.isclose(top_p, 1.0):
        return probs
    ordered, order = probs.sort(descending=True)
    beyond = ordered.cumsum(0) - ordered >= top_p
    return probs.index_fill(0, order[beyond], 0.0)
