"""The choice of the next token where typed bytes bind it: masks by interval, exact masses.

Every exit of a covering is a row of next-token log-probabilities, cut to the tokens that may
follow there. Its mass is log P(path) + logsumexp(row): what the model gives to all continuations
that leave the healed bytes by this path (Vieira et al. 2025, section 3.4).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from inference.covering import Exit, Rule, find_leaving
from inference.tree import TokenTree
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one request wants its tokens drawn."""

    temperature: float
    top_p: float

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class Question:
    """What one sequence asks of its rows of logits."""

    tree: TokenTree
    exits: tuple[Exit, ...]
    sampling: Sampling
    generators: tuple[torch.Generator | None, ...] = (None,)  # one for each choice that is wanted


@dataclass(frozen=True, slots=True)
class Choice:
    """A token, and the exit that it leaves by."""

    exit: Exit
    token_id: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A question's exits, weighed, and the choices among them. Arrays are [num_exits], on the host."""

    log_masses: npt.NDArray[np.float64]  # log P(path) + log of the mass that leaves here
    best_ids: npt.NDArray[np.int64]
    best_log_probs: npt.NDArray[np.float64]  # log P(path + best token)
    choices: tuple[Choice, ...]
    num_hot_hits: int  # lookups of an allowed set that the hot-prefix cache answered, and those it built
    num_hot_misses: int


@dataclass(frozen=True, slots=True)
class _Rows:
    """The exits of all questions, flat."""

    rows: list[int]  # row of logits that each exit reads
    owners: list[int]  # the question it belongs to
    exits: list[Exit]


@dataclass(slots=True)
class _Lookups:
    """How a question's lookups of allowed sets went."""

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
        self._ranks = torch.tensor(trie.rank, device=device)  # [vocab_size] int32; specials lie beyond every interval
        known = torch.tensor([bool(data) for data in vocabulary.token_bytes])
        known[sorted(vocabulary.special_ids)] = True
        self._known = known.to(device)  # [vocab_size] bool; False for padding rows

    @torch.inference_mode()
    def choose(self, questions: Sequence[Question], logits: torch.Tensor) -> list[Answer]:
        """An answer for each question. `logits`: the rows of all trees' nodes, as `Runner.forward` gives them."""
        flat, first_rows = _lay_flat(questions)
        lookups = [_Lookups() for _ in questions]
        log_probs = torch.log_softmax(logits.masked_fill(~self._known, -torch.inf), dim=-1)
        scores = log_probs[flat.rows]  # [num_exits, vocab_size]
        if any(exit_.rest for exit_ in flat.exits):
            scores = scores.masked_fill(~self._build_masks(flat, lookups), -torch.inf)
        best, best_ids = scores.max(dim=-1)
        masses = torch.logsumexp(scores, dim=-1)
        edges = _find_edge_log_probs(questions, first_rows, log_probs)
        host = torch.stack([best.double(), masses.double(), best_ids.double()]).cpu().numpy()
        answers = []
        first_exit = 0
        for question, path_edges, looked_up in zip(questions, edges, lookups, strict=True):
            here = slice(first_exit, first_exit + len(question.exits))
            first_exit += len(question.exits)
            paths = np.array([sum(path_edges[b] for b in question.tree.iter_path(e.node)) for e in question.exits])
            bests = host[0, here] + paths
            ids = host[2, here].astype(np.int64)
            choices = _choose_greedily(question, bests, ids)
            if choices is None:
                choices = _draw(question, scores[here] + torch.from_numpy(paths).to(scores)[:, None])
            answers.append(Answer(host[1, here] + paths, ids, bests, choices, looked_up.num_hits, looked_up.num_misses))
        return answers

    def _build_masks(self, flat: _Rows, lookups: list[_Lookups]) -> torch.Tensor:
        """[num_exits, vocab_size] bool, device: the tokens that may follow at each exit."""
        intervals = [_find_interval(self._trie, exit_) for exit_ in flat.exits]
        bounds = torch.tensor([(interval.lo, interval.hi) for interval in intervals], device=self._device)
        masks = (self._ranks >= bounds[:, :1]) & (self._ranks < bounds[:, 1:])
        for row, (owner, exit_) in enumerate(zip(flat.owners, flat.exits, strict=True)):
            if not exit_.rest:
                masks[row] = True
            elif exit_.rule is Rule.SPELL:
                num_hits = self._hot_prefixes.num_hits
                allowed = self._hot_prefixes.allowed(exit_.rest)
                masks[row, torch.tensor(allowed.ids, device=self._device)] = True
                lookups[owner].count(was_hit=self._hot_prefixes.num_hits > num_hits)
        return masks


def _find_interval(trie: Trie, exit_: Exit) -> Interval:
    return find_leaving(trie, exit_.rest) if exit_.rule is Rule.LEAVE else trie.find_interval(exit_.rest)


def _lay_flat(questions: Sequence[Question]) -> tuple[_Rows, list[int]]:
    flat = _Rows([], [], [])
    first_rows = []
    row = 0
    for owner, question in enumerate(questions):
        first_rows.append(row)
        for exit_ in question.exits:
            flat.rows.append(row + (0 if exit_.node is None else exit_.node + 1))
            flat.owners.append(owner)
            flat.exits.append(exit_)
        row += 1 + len(question.tree.branch_ids)
    return flat, first_rows


def _find_edge_log_probs(
    questions: Sequence[Question], first_rows: list[int], log_probs: torch.Tensor
) -> list[list[float]]:
    """For each question's branches, log P(branch | its parent)."""
    rows = [
        first + (0 if parent is None else parent + 1)
        for question, first in zip(questions, first_rows, strict=True)
        for parent in question.tree.parents
    ]
    if not rows:
        return [[] for _ in questions]
    ids = [token_id for question in questions for token_id in question.tree.branch_ids]
    edges = iter(log_probs[rows, ids].tolist())
    return [[next(edges) for _ in question.tree.branch_ids] for question in questions]


def _choose_greedily(
    question: Question, bests: npt.NDArray[np.float64], ids: npt.NDArray[np.int64]
) -> tuple[Choice, ...] | None:
    """The single best path and token; None where more than that is wanted."""
    if not question.sampling.is_greedy or len(question.generators) > 1:
        return None
    best = int(bests.argmax())
    return (Choice(question.exits[best], int(ids[best])),)


def _draw(question: Question, joint: torch.Tensor) -> tuple[Choice, ...]:
    """Draws from, or ranks, all paths and tokens at once; fewer than wanted where there are no more to rank.

    `joint`: [num_exits, vocab_size] log-probabilities, -inf for what may not follow.
    """
    vocab_size = joint.shape[1]
    flat = joint.flatten()
    allowed = flat.isfinite().nonzero()[:, 0]
    scores = flat[allowed].double()
    if question.sampling.is_greedy:
        picks = scores.topk(min(len(question.generators), len(scores))).indices.tolist()
    else:
        probs = _keep_top(torch.softmax(scores / question.sampling.temperature, dim=0), question.sampling.top_p)
        picks = [int(torch.multinomial(probs, 1, generator=generator)) for generator in question.generators]
    places = allowed[picks].tolist()
    return tuple(Choice(question.exits[place // vocab_size], place % vocab_size) for place in places)


def _keep_top(probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """The smallest set of the likeliest that holds `top_p` of the mass; the others get zero."""
    if math.isclose(top_p, 1.0):
        return probs
    ordered, order = probs.sort(descending=True)
    beyond = ordered.cumsum(0) - ordered >= top_p
    return probs.index_fill(0, order[beyond], 0.0)
