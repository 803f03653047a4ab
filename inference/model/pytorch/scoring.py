"""What a choice must know of rows of logits, and how it is computed. Nothing is chosen here.

The questions of one choice are packed: one copy takes them to the device, and one brings all answers to the host.
`PlainScorer` answers them with torch's own operations, on any device; the kernels of `choice_kernel` are the fast way,
and `check_scorer` compares both when a model is loaded.

A draw has two steps. Gumbel noise for every token of the vocabulary would cost more than to read it:

1. Draw a chunk of the row, in proportion to the mass of its allowed tokens.
2. Draw an allowed token of this chunk.

The numbers that draws use are counter-based, so that they need no state on the device and are the same on every device:
Philox 4x32 with ten rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), computed with 64-bit
integers. The kernels compute the same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from inference.errors import ModelError
from inference.model.pytorch.device import copy_together
from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary

CHUNK_SIZE = 2048  # logits that one program of the kernels reads, and that one step of a draw chooses among


class TokenRanks:
    """Which ids are tokens, and which of these a question allows."""

    def __init__(self, vocabulary: Vocabulary, trie: Trie, device: torch.device, chunk_size: int = CHUNK_SIZE) -> None:
        """`chunk_size`: a power of two. Draws with the same seed differ between sizes."""
        is_token = np.array([bool(data) for data in vocabulary.token_bytes])
        is_token[sorted(vocabulary.special_ids)] = True
        self.device = device
        self.chunk_size = chunk_size
        self.num_logits = trie.num_rows  # of a row
        self.num_text_tokens = trie.num_tokens  # the rank of special tokens, which are in no interval of text
        self.num_leading = int(np.append(is_token, False).argmin())  # the ids from 0 that are tokens without a gap
        self.num_chunks = -(-self.num_logits // chunk_size)
        ranks = np.full(self.num_chunks * chunk_size, -1, np.int32)
        ranks[: self.num_logits][is_token] = trie.rank[is_token]
        self.ranks = torch.from_numpy(ranks).to(device)  # [num_chunks * chunk_size] int32, -1 for ids without a token
        self._order = torch.tensor(trie.order, device=device)  # [num_text_tokens] int32, rank -> id
        self._token_ids = torch.from_numpy(np.flatnonzero(is_token).astype(np.int32)).to(device)

    @property
    def all_tokens(self) -> Interval:
        """The interval of all tokens, special ones too."""
        return Interval(0, self.num_text_tokens + 1)

    def find_ids(self, interval: Interval, more_ids: torch.Tensor) -> torch.Tensor:
        """The ids of an interval and some more, ascending: [num_allowed] int64, device. Nothing is copied to the host.

        `more_ids`: [num_more], device; not in the interval.
        """
        if interval == self.all_tokens:
            return self._token_ids.long()
        return torch.cat([more_ids.long(), self._order[interval.lo : interval.hi].long()]).sort().values


_NUM_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF  # 32 bits


class Level(IntEnum):
    """What a number decides. Each level has numbers of its own."""

    CHUNK = 0  # in which chunk of a row the drawn token is
    TOKEN = 1  # which token of the chunk it is
    HEAD = 2  # which of the sorted tokens it is, where only the likeliest may be drawn


def build_uniforms(
    seeds: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, streams: torch.Tensor, level: Level
) -> torch.Tensor:
    """Numbers in (0, 1], float32. The arguments are int64, and broadcast."""
    words = _build_words(seeds, indices, offsets, streams, level)
    return words.float() * 2.0**-32 + 2.0**-33


def build_gumbels(
    seeds: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, streams: torch.Tensor, level: Level
) -> torch.Tensor:
    """Standard Gumbel noise, float32: of log-weights plus this noise, the greatest is drawn in proportion to weight."""
    # log1p keeps the digits of small numbers, which are those that win.
    return -torch.log(-torch.log1p(-build_uniforms(seeds, indices, offsets, streams, level)))


def _build_words(
    seeds: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, streams: torch.Tensor, level: Level
) -> torch.Tensor:
    """The first 32-bit word of each block, as int64."""
    c0, c1, c2, c3 = indices & _LOW, offsets & _LOW, streams & _LOW, torch.full_like(indices, level)
    k0, k1 = seeds & _LOW, (seeds >> 32) & _LOW
    for _ in range(_NUM_ROUNDS):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high2, low2 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return c0


def _multiply(word: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The high and the low 32 bits of a product. It may overflow into the sign, which the mask removes."""
    product = word * factor
    return (product >> 32) & _LOW, product & _LOW


_Floats = npt.NDArray[np.float64]


# Hot path: a named tuple is created in a third of the time of a frozen dataclass.
class Question(NamedTuple):
    """One row of logits, and which of its tokens are allowed."""

    row: int  # among the rows of the batch
    interval: Interval  # of ranks; `TokenRanks.all_tokens` for no limit, which allows special tokens too
    more_ids: Sequence[int] = ()  # tokens outside the interval that are allowed too
    inverse_temperature: float = 0.0  # of its draws; 0 if there are none


class Draw(NamedTuple):
    """A token to be drawn among those that a question allows. The fields are also the columns of `Batch.draws`."""

    question: int
    seed: int  # 63 bits
    offset: int  # the number of the draw, among those with this seed
    stream: int  # the number of the question, among those that this draw is repeated for


class Edge(NamedTuple):
    """A token whose logit is asked for. The fields are also the columns of `Batch.edges`."""

    row: int
    token_id: int


class PackedQuestion(NamedTuple):
    """The columns of `Batch.packed_questions`."""

    row: int
    lo: int  # of the interval
    hi: int
    first_more: int  # of its further ids, in `Batch.more_ids`
    end_more: int
    scale_bits: int  # of 1 / temperature as a float32


@dataclass(frozen=True, slots=True)
class Batch:
    """Questions about some rows. Tensors are on the device; all of int64 were copied there together."""

    rows: tuple[torch.Tensor, ...]  # each [vocab_size], contiguous, of one type
    questions: tuple[Question, ...]
    addresses: torch.Tensor  # [num_rows] int64, of the rows' memory, for kernels
    packed_questions: torch.Tensor  # [num_questions, len(PackedQuestion._fields)] int64
    more_ids: torch.Tensor  # [num_more] int64: the ids that questions allow beside their intervals
    more_questions: torch.Tensor  # [num_more] int64: the question that allows each of them
    draws: torch.Tensor  # [num_draws, len(Draw._fields)] int64
    edges: torch.Tensor  # [num_edges, len(Edge._fields)] int64

    @property
    def num_answers(self) -> int:
        """The length of the array that the answers are in."""
        return 4 * len(self.questions) + 2 * len(self.draws) + len(self.edges)

    def find_more_ids(self, question: int) -> torch.Tensor:
        """[num_more] int64, device: the ids that one question allows beside its interval."""
        start = sum(len(each.more_ids) for each in self.questions[:question])
        return self.more_ids[start : start + len(self.questions[question].more_ids)]


class Scorer(Protocol):
    """Answers the questions of a batch."""

    def score(self, batch: Batch) -> torch.Tensor:
        """[batch.num_answers] float32 or float64, device: the fields of `Scores`, one after the other."""
        ...


@dataclass(frozen=True, slots=True)
class Scores:
    """The answers, on the host. All of them are about logits, not about log-probabilities."""

    log_totals: _Floats  # [num_questions] log-sum-exp of all tokens of the row
    log_masses: _Floats  # [num_questions] log-sum-exp of the allowed tokens; -inf if there are none
    best_logits: _Floats  # [num_questions] -inf if no token is allowed
    best_ids: npt.NDArray[np.int64]  # [num_questions] the smallest id with this logit; -1 if no token is allowed
    # [num_draws] log of the mass of the allowed tokens at the draw's temperature, relative to the best of them, plus
    # Gumbel noise. With log P(path + best token) / temperature added, the greatest is an exact draw among questions.
    draw_scores: _Floats
    drawn_ids: npt.NDArray[np.int64]  # [num_draws] the token drawn among those allowed; -1 if there are none
    edge_logits: _Floats  # [num_edges]


def build_batch(
    rows: Sequence[torch.Tensor],
    questions: Sequence[Question],
    draws: Sequence[Draw] = (),
    edges: Sequence[Edge] = (),
    *,
    device: torch.device,
) -> Batch:
    """Packs questions and copies them to the device."""
    packed: list[PackedQuestion] = []
    more_ids: list[int] = []
    more_questions: list[int] = []
    for index, (row, (lo, hi), further, inverse_temperature) in enumerate(questions):
        start = len(more_ids)
        more_ids += further
        more_questions += [index] * len(further)
        scale_bits = int(np.float32(inverse_temperature).view(np.int32))
        packed.append(PackedQuestion(row, lo, hi, start, len(more_ids), scale_bits))
    addresses = [row.data_ptr() for row in rows]
    arrays = [np.array(values, np.int64) for values in (addresses, packed, more_ids, more_questions)]
    arrays += [np.array(values, np.int64).reshape(-1, width) for values, width in ((draws, 4), (edges, 2))]
    return Batch(tuple(rows), tuple(questions), *copy_together(arrays, device))


def find_scores(scorer: Scorer, batch: Batch) -> Scores:
    """The answers to a batch, copied to the host."""
    answers: _Floats = scorer.score(batch).cpu().numpy().astype(np.float64)
    ends = np.cumsum([len(batch.questions)] * 4 + [len(batch.draws)] * 2)
    totals, masses, best_logits, best_ids, draw_scores, drawn_ids, edge_logits = np.split(answers, ends)
    ids, drawn = best_ids.astype(np.int64), drawn_ids.astype(np.int64)
    return Scores(totals, masses, best_logits, ids, draw_scores, drawn, edge_logits)


_NUM_DRAWS = 256  # computed together


class PlainScorer:
    """The answers with torch's own operations. Rows of float64 are computed in float64, all others in float32."""

    def __init__(self, ranks: TokenRanks) -> None:
        self._ranks = ranks

    @torch.inference_mode()
    def score(self, batch: Batch) -> torch.Tensor:
        """The answers to a batch."""
        rows = torch.stack(batch.rows)
        rows = rows if rows.dtype == torch.float64 else rows.float()
        places, los, his, _, _, scale_bits = batch.packed_questions.T[:, :, None]
        ranks = self._ranks.ranks[: self._ranks.num_logits]
        logits = rows.masked_fill(ranks < 0, -torch.inf)[places[:, 0]]
        may_follow = (ranks >= los) & (ranks < his)
        may_follow[batch.more_questions, batch.more_ids] = True
        allowed = logits.masked_fill(~may_follow, -torch.inf)
        best_logits, best_ids = allowed.max(dim=-1)  # of equal ones, the smallest id
        best_ids = best_ids.masked_fill(best_logits == -torch.inf, -1)
        answers = [logits.logsumexp(dim=-1), allowed.logsumexp(dim=-1), best_logits, best_ids.to(logits)]
        if len(batch.draws):
            bests = best_logits.masked_fill(best_logits == -torch.inf, 0.0)
            answers += self._draw(batch.draws, allowed - bests[:, None], scale_bits.int().view(torch.float32))
        edge_rows, token_ids = batch.edges.T
        return torch.cat([*answers, rows[edge_rows, token_ids]])

    def _draw(self, draws: torch.Tensor, allowed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        """The score and the id of each draw: [2, num_draws].

        `allowed`: [num_questions, vocab_size] logits relative to the best of them, -inf for other tokens; `scales`:
        [num_questions, 1].
        """
        weights = (allowed * scales).masked_fill(allowed == -torch.inf, -torch.inf)
        num_missing = self._ranks.num_chunks * self._ranks.chunk_size - weights.shape[1]
        weights = torch.nn.functional.pad(weights, (0, num_missing), value=-torch.inf)
        chunks = weights.view(len(weights), self._ranks.num_chunks, self._ranks.chunk_size)
        masses = chunks.logsumexp(dim=-1)
        return torch.cat([_draw_some(some, chunks, masses) for some in torch.split(draws, _NUM_DRAWS)], dim=1)


def _draw_some(draws: torch.Tensor, chunks: torch.Tensor, masses: torch.Tensor) -> torch.Tensor:
    """`chunks`: [num_questions, num_chunks, chunk_size] log-weights. `masses`: [num_questions, num_chunks]."""
    questions, seeds, offsets, streams = draws.T[:, :, None]
    indices = torch.arange(masses.shape[1], device=masses.device)
    noisy = masses[questions[:, 0]] + build_gumbels(seeds, indices, offsets, streams, Level.CHUNK)
    scores, drawn = noisy.max(dim=1)
    ids = drawn[:, None] * chunks.shape[2] + torch.arange(chunks.shape[2], device=masses.device)
    noisy = chunks[questions[:, 0], drawn] + build_gumbels(seeds, ids, offsets, streams, Level.TOKEN)
    drawn_ids = ids.gather(1, noisy.argmax(dim=1, keepdim=True))[:, 0].masked_fill(scores == -torch.inf, -1)
    return torch.stack([scores, drawn_ids.to(scores)])


_NUM_ROWS = 3
_NUM_TRIAL_DRAWS = 8  # for each question
_SPREAD = 4.0  # standard deviation of the logits; real ones have 2 to 5
# In float32. Sums in another order differ by some 1e-6. Scores of draws have the noise of approximate logarithms too.
_TOLERANCE = 1e-3


def check_scorer(scorer: Scorer, expected: Scorer, ranks: TokenRanks, dtype: torch.dtype) -> None:
    """Compares the answers to some questions about random rows. Raises ModelError if they differ."""
    batch = _build_trial(ranks, dtype)
    answers, others = find_scores(scorer, batch), find_scores(expected, batch)
    faults = []
    for name in ("log_totals", "log_masses", "best_logits", "best_ids", "edge_logits", "draw_scores"):
        difference = _find_difference(getattr(answers, name), getattr(others, name))
        if not difference <= _TOLERANCE:  # so for NaN too
            faults.append(f"its {name} differ by {difference:.1g} from those of torch's operations")
    # A rounding error may change a draw, but not most of them.
    num_draws, num_equal = len(others.drawn_ids), int((answers.drawn_ids == others.drawn_ids).sum())
    if num_equal < num_draws / 2:
        faults.append(f"only {num_equal} of its {num_draws} draws are those of torch's operations")
    if faults:
        name = str(dtype).removeprefix("torch.")
        raise ModelError(
            f"{type(scorer).__name__} computes wrong scores of {name} logits on {ranks.device}: {faults[0]}"
        )


def _find_difference(answers: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """The greatest difference; infinite if only one is infinite, NaN if one is no number."""
    same = answers == expected  # infinite ones too
    return float(np.abs(np.where(same, 0.0, answers) - np.where(same, 0.0, expected)).max(initial=0.0))


def _build_trial(ranks: TokenRanks, dtype: torch.dtype) -> Batch:
    """Questions of all kinds about rows of random logits."""
    generator = torch.Generator().manual_seed(0)
    logits = _SPREAD * torch.randn(_NUM_ROWS, ranks.num_logits, generator=generator)
    rows = [row.to(dtype).to(ranks.device) for row in logits]
    num_text = ranks.num_text_tokens
    outside = ranks.find_ids(Interval(0, min(num_text, 3)), torch.empty(0, device=ranks.device)).tolist()
    intervals = [
        (ranks.all_tokens, ()),
        (Interval(num_text // 4, num_text // 2), ()),
        (Interval(num_text // 2, min(num_text, num_text // 2 + 1)), outside),
        (Interval(0, 0), ()),
    ]
    questions = [
        Question(row, interval, more_ids, 1.0 / (1 + row))
        for row in range(_NUM_ROWS)
        for interval, more_ids in intervals
    ]
    draws = [
        Draw(question, 2**40 + draw, draw, question)
        for question in range(len(questions))
        for draw in range(_NUM_TRIAL_DRAWS)
    ]
    edges = [
        Edge(row, token_id) for row in range(_NUM_ROWS) for token_id in (0, ranks.num_logits // 2, ranks.num_logits - 1)
    ]
    return build_batch(rows, questions, draws, edges, device=ranks.device)
