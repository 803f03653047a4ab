"""The questions of one choice, packed: one copy takes them to the device, and one brings all answers to the host.

All are integers, in one array: the questions, the ids that they allow beside their intervals, the draws and the edges.
A row stands there as its index, and as its address for the kernels. The answers are numbers, in one array.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from inference.model.pytorch.transfer import copy_to_device
from trie_cache.trie import Interval

NUM_QUESTION_FIELDS = 7  # address, row, lo, hi, first and end of the further ids, the bits of 1 / temperature
NUM_MORE_FIELDS = 2  # question, id
NUM_DRAW_FIELDS = 4  # as in `Draw`
NUM_EDGE_FIELDS = 3  # address, row, id
NUM_ANSWERS = 4  # of a question: log_total, log_mass, best_logit, best_id
NUM_DRAW_ANSWERS = 2  # score, id

_Floats = npt.NDArray[np.float64]
_Ids = npt.NDArray[np.int64]


# Hot path: a named tuple is created in a third of the time of a frozen dataclass.
class Question(NamedTuple):
    """One row of logits, and which of its tokens are allowed."""

    row: int  # among the rows of the batch
    interval: Interval  # of ranks; `TokenRanks.all_tokens` for no limit, which allows special tokens too
    more_ids: Sequence[int] = ()  # tokens outside the interval that are allowed too
    inverse_temperature: float = 0.0  # of its draws; 0 if there are none


class Draw(NamedTuple):
    """A token to be drawn among those that a question allows."""

    question: int
    seed: int  # 63 bits
    offset: int  # the number of the draw, among those with this seed
    stream: int  # the number of the question, among those that this draw is repeated for


class Edge(NamedTuple):
    """A token whose logit is asked for."""

    row: int
    token_id: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Questions about some rows, on the device."""

    rows: tuple[torch.Tensor, ...]  # each [vocab_size], contiguous, of one type, device
    values: torch.Tensor  # [num_values] int64, device
    questions: tuple[Question, ...]
    num_more: int
    num_draws: int
    num_edges: int

    @property
    def num_questions(self) -> int:
        """The number of questions."""
        return len(self.questions)

    @property
    def more_at(self) -> int:
        """Where the further ids begin in `values`, after the questions."""
        return NUM_QUESTION_FIELDS * self.num_questions

    @property
    def draws_at(self) -> int:
        """Where the draws begin."""
        return self.more_at + NUM_MORE_FIELDS * self.num_more

    @property
    def edges_at(self) -> int:
        """Where the edges begin."""
        return self.draws_at + NUM_DRAW_FIELDS * self.num_draws

    @property
    def num_answers(self) -> int:
        """The length of the array that the answers are in: those of questions, then of draws, then of edges."""
        return NUM_ANSWERS * self.num_questions + NUM_DRAW_ANSWERS * self.num_draws + self.num_edges

    @property
    def question_fields(self) -> torch.Tensor:
        """[num_questions, NUM_QUESTION_FIELDS] int64, device."""
        return self.values[: self.more_at].view(-1, NUM_QUESTION_FIELDS)

    @property
    def more(self) -> torch.Tensor:
        """[num_more, 2] int64, device: a question, and an id that it allows beside its interval."""
        return self.values[self.more_at : self.draws_at].view(-1, NUM_MORE_FIELDS)

    def find_more_ids(self, question: int) -> torch.Tensor:
        """[num_more] int64, device: the ids that one question allows beside its interval."""
        start = sum(len(each.more_ids) for each in self.questions[:question])
        return self.more[start : start + len(self.questions[question].more_ids), 1]

    @property
    def draws(self) -> torch.Tensor:
        """[num_draws, 4] int64, device: the fields of each `Draw`."""
        return self.values[self.draws_at : self.edges_at].view(-1, NUM_DRAW_FIELDS)

    @property
    def edges(self) -> torch.Tensor:
        """[num_edges, NUM_EDGE_FIELDS] int64, device."""
        return self.values[self.edges_at :].view(-1, NUM_EDGE_FIELDS)


class Scorer(Protocol):
    """Answers the questions of a batch."""

    def score(self, batch: Batch) -> torch.Tensor:
        """[batch.num_answers] float32 or float64, device, as `Scores.from_answers` reads them."""
        ...


@dataclass(frozen=True, slots=True)
class Scores:
    """The answers, on the host. All of them are about logits, not about log-probabilities."""

    log_totals: _Floats  # [num_questions] log-sum-exp of all tokens of the row
    log_masses: _Floats  # [num_questions] log-sum-exp of the allowed tokens; -inf if there are none
    best_logits: _Floats  # [num_questions] -inf if no token is allowed
    best_ids: _Ids  # [num_questions] the smallest id with this logit; -1 if no token is allowed
    # [num_draws] log of the mass of the allowed tokens at the draw's temperature, relative to the best of them, plus
    # Gumbel noise. With log P(path + best token) / temperature added, the greatest is an exact draw among questions.
    draw_scores: _Floats
    drawn_ids: _Ids  # [num_draws] the token drawn among those allowed; -1 if there are none
    edge_logits: _Floats  # [num_edges]

    @classmethod
    def from_answers(cls, answers: _Floats, batch: Batch) -> "Scores":
        """The answers of a `Scorer`, copied to the host."""
        edges_at = batch.num_answers - batch.num_edges
        draws_at = edges_at - NUM_DRAW_ANSWERS * batch.num_draws
        log_totals, log_masses, best_logits, best_ids = answers[:draws_at].reshape(-1, NUM_ANSWERS).T
        draw_scores, drawn_ids = answers[draws_at:edges_at].reshape(-1, NUM_DRAW_ANSWERS).T
        return cls(
            log_totals,
            log_masses,
            best_logits,
            best_ids.astype(np.int64),
            draw_scores,
            drawn_ids.astype(np.int64),
            answers[edges_at:],
        )


def build_batch(
    rows: Sequence[torch.Tensor],
    questions: Sequence[Question],
    draws: Sequence[Draw] = (),
    edges: Sequence[Edge] = (),
    *,
    device: torch.device,
) -> Batch:
    """Packs questions and copies them to the device."""
    addresses = [row.data_ptr() for row in rows]
    fields: list[tuple[int, ...]] = []
    more: list[tuple[int, int]] = []
    for index, (row, (lo, hi), more_ids, _) in enumerate(questions):
        start = len(more)
        more += [(index, int(token_id)) for token_id in more_ids]
        fields.append((addresses[row], row, lo, hi, start, len(more), 0))
    packed = np.array(fields, np.int64).reshape(-1, NUM_QUESTION_FIELDS)
    packed[:, -1] = np.array([question.inverse_temperature for question in questions], np.float32).view(np.int32)
    located_edges = [(addresses[row], row, token_id) for row, token_id in edges]
    parts = [packed, *(np.array(values, np.int64) for values in (more, draws, located_edges))]
    values = copy_to_device(np.concatenate([part.ravel() for part in parts]), device)
    return Batch(tuple(rows), values, tuple(questions), len(more), len(draws), len(edges))


def find_scores(scorer: Scorer, batch: Batch) -> Scores:
    """The answers to a batch, copied to the host."""
    answers: _Floats = scorer.score(batch).cpu().numpy().astype(np.float64)
    return Scores.from_answers(answers, batch)
