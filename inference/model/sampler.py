"""The choice of the next token under the constraint of the typed bytes: interval masks and exact masses.

Each crossing of a covering has a row of next-token log-probabilities, masked to the tokens that may follow there. Its
log-mass is log P(path) + logsumexp(row): the probability of all continuations that leave the healed bytes through this
crossing (Vieira et al. 2025, section 3.4).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from inference.healing.covering import Crossing, Rule, find_crossing_interval
from inference.model.language_model import Choice, RandomSource, SampleRequest, SampleResult
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class _Layout:
    """The crossings of all requests in one list, and the row of logits of each."""

    crossings: list[Crossing]
    owners: list[int]  # for each crossing, the index of its request
    rows: list[int]  # for each crossing, its row of logits
    first_rows: list[int]  # for each request, the row of its chain's end


@dataclass(slots=True)
class _Lookups:
    """Hits and misses of one request's lookups in the hot-prefix cache."""

    num_hits: int = 0
    num_misses: int = 0

    def count(self, *, was_hit: bool) -> None:
        self.num_hits += was_hit
        self.num_misses += not was_hit


class Sampler:
    """Chooses tokens under interval masks, for many sequences at once."""

    def __init__(self, vocabulary: Vocabulary, hot_prefixes: HotPrefixCache, trie: Trie, device: torch.device) -> None:
        self._hot_prefixes = hot_prefixes
        self._trie = trie
        self._device = device
        self._ranks = torch.tensor(trie.rank, device=device)  # [vocab_size] int32; special tokens are in no interval
        is_token = torch.tensor([bool(data) for data in vocabulary.token_bytes])
        is_token[sorted(vocabulary.special_ids)] = True
        self._is_token = is_token.to(device)  # [vocab_size] bool, device; False for padding rows

    @torch.inference_mode()
    def choose(self, requests: Sequence[SampleRequest], logits: torch.Tensor) -> list[SampleResult]:
        """One result per request. `logits`: the rows of the nodes of all trees, as returned by `Runner.forward`."""
        layout = _lay_out(requests)
        lookups = [_Lookups() for _ in requests]
        log_probs = torch.log_softmax(logits.masked_fill(~self._is_token, -torch.inf), dim=-1)
        scores = log_probs[layout.rows]  # [num_crossings, vocab_size]
        if any(crossing.remaining_bytes for crossing in layout.crossings):
            scores = scores.masked_fill(~self._build_masks(layout, lookups), -torch.inf)
        best, best_ids = scores.max(dim=-1)
        masses = torch.logsumexp(scores, dim=-1)
        edges = _find_edge_log_probs(requests, layout.first_rows, log_probs)
        host = torch.stack([best.double(), masses.double(), best_ids.double()]).cpu().numpy()
        results = []
        first_crossing = 0
        for request, path_edges, looked_up in zip(requests, edges, lookups, strict=True):
            here = slice(first_crossing, first_crossing + len(request.crossings))
            first_crossing += len(request.crossings)
            paths = np.array(
                [sum(path_edges[b] for b in request.tree.iter_path(each.node)) for each in request.crossings]
            )
            bests = host[0, here] + paths
            ids = host[2, here].astype(np.int64)
            choices = _choose_greedily(request, bests, ids)
            if choices is None:
                choices = _draw(request, scores[here] + torch.from_numpy(paths).to(scores)[:, None])
            results.append(
                SampleResult(host[1, here] + paths, ids, bests, choices, looked_up.num_hits, looked_up.num_misses)
            )
        return results

    def _build_masks(self, layout: _Layout, lookups: list[_Lookups]) -> torch.Tensor:
        """[num_crossings, vocab_size] bool, device: the tokens that may follow at each crossing."""
        intervals = [_find_interval(self._trie, crossing) for crossing in layout.crossings]
        bounds = torch.tensor([(interval.lo, interval.hi) for interval in intervals], device=self._device)
        masks = (self._ranks >= bounds[:, :1]) & (self._ranks < bounds[:, 1:])
        for row, (owner, crossing) in enumerate(zip(layout.owners, layout.crossings, strict=True)):
            if not crossing.remaining_bytes:
                masks[row] = True
            elif crossing.rule is Rule.SPELL:
                num_hits = self._hot_prefixes.num_hits
                allowed = self._hot_prefixes.allowed(crossing.remaining_bytes)
                masks[row, torch.tensor(allowed.ids, device=self._device)] = True
                lookups[owner].count(was_hit=self._hot_prefixes.num_hits > num_hits)
        return masks


def _find_interval(trie: Trie, crossing: Crossing) -> Interval:
    return (
        find_crossing_interval(trie, crossing.remaining_bytes)
        if crossing.rule is Rule.CROSS
        else trie.find_interval(crossing.remaining_bytes)
    )


def _lay_out(requests: Sequence[SampleRequest]) -> _Layout:
    layout = _Layout([], [], [], [])
    first_row = 0
    for owner, request in enumerate(requests):
        layout.first_rows.append(first_row)
        for crossing in request.crossings:
            layout.crossings.append(crossing)
            layout.owners.append(owner)
            layout.rows.append(first_row + _find_row(crossing.node))
        first_row += 1 + len(request.tree.branch_ids)
    return layout


def _find_row(node: int | None) -> int:
    """A node's row among the rows of its tree; the chain's end comes first."""
    return 0 if node is None else node + 1


def _find_edge_log_probs(
    requests: Sequence[SampleRequest], first_rows: list[int], log_probs: torch.Tensor
) -> list[list[float]]:
    """log P(branch | its parent) for the branches of each request."""
    rows = [
        first + _find_row(parent)
        for request, first in zip(requests, first_rows, strict=True)
        for parent in request.tree.parents
    ]
    if not rows:
        return [[] for _ in requests]
    ids = [token_id for request in requests for token_id in request.tree.branch_ids]
    edges = iter(log_probs[rows, ids].tolist())
    return [[next(edges) for _ in request.tree.branch_ids] for request in requests]


def _choose_greedily(
    request: SampleRequest, bests: npt.NDArray[np.float64], ids: npt.NDArray[np.int64]
) -> tuple[Choice, ...] | None:
    """The most likely path and token; None if choices are sampled or several are requested."""
    if not request.sampling.is_greedy or len(request.random_sources) > 1:
        return None
    best = int(bests.argmax())
    return (Choice(request.crossings[best], int(ids[best])),)


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
    assert isinstance(source, torch.Generator), "TorchModel.new_random_source made it"
    return int(torch.multinomial(probs, 1, generator=source))


def _keep_top(probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """The probabilities of the fewest most likely tokens that together reach `top_p`; all others are zero."""
    if math.isclose(top_p, 1.0):
        return probs
    ordered, order = probs.sort(descending=True)
    beyond = ordered.cumsum(0) - ordered >= top_p
    return probs.index_fill(0, order[beyond], 0.0)
