"""What a choice must know of rows of logits, and how it is computed. Nothing is chosen here.

The questions of one choice are packed, and one copy brings all answers to the host.
The kernels of `choice_kernel` answer them on a GPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from trie_cache.trie import Interval, Trie
from trie_cache.vocabulary import Vocabulary

CHUNK_SIZE = 2048  # logits that one program of the kernels reads


class TokenRanks:
    """Which ids are tokens, and which of these a question allows."""

    def __init__(self, vocabulary: Vocabulary, trie: Trie, device: torch.device, chunk_size: int = CHUNK_SIZE) -> None:
        """`chunk_size`: a power of two."""
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

    @property
    def all_tokens(self) -> Interval:
        """The interval of all tokens, special ones too."""
        return Interval(0, self.num_text_tokens + 1)


_Floats = npt.NDArray[np.float64]


# Hot path: a named tuple is created in a third of the time of a frozen dataclass.
class RowQuestion(NamedTuple):
    """One row of logits, and which of its tokens are allowed."""

    row: int  # among the rows of the batch
    interval: Interval  # of ranks; `TokenRanks.all_tokens` for no limit, which allows special tokens too
    more_ids: Sequence[int] = ()  # tokens outside the interval that are allowed too


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


@dataclass(frozen=True, slots=True)
class Batch:
    """Questions about some rows. Tensors are on the device."""

    rows: tuple[torch.Tensor, ...]  # each [vocab_size], contiguous, of one type
    questions: tuple[RowQuestion, ...]
    addresses: torch.Tensor  # [num_rows] int64, of the rows' memory, for kernels
    packed_questions: torch.Tensor  # [num_questions, len(PackedQuestion._fields)] int64
    more_ids: torch.Tensor  # [num_more] int64: the ids that questions allow beside their intervals
    edges: torch.Tensor  # [num_edges, len(Edge._fields)] int64


# Answers the questions of a batch: the fields of `RowScores`, one after the other, in one array of float32 or float64,
# device.
Scorer = Callable[[Batch], torch.Tensor]


@dataclass(frozen=True, slots=True)
class RowScores:
    """The answers, on the host. All of them are about logits, not about log-probabilities."""

    log_totals: _Floats  # [num_questions] log-sum-exp of all tokens of the row
    log_masses: _Floats  # [num_questions] log-sum-exp of the allowed tokens; -inf if there are none
    best_logits: _Floats  # [num_questions] -inf if no token is allowed
    best_ids: npt.NDArray[np.int64]  # [num_questions] the smallest id with this logit; -1 if no token is allowed
    edge_logits: _Floats  # [num_edges]


def build_batch(
    rows: Sequence[torch.Tensor],
    questions: Sequence[RowQuestion],
    edges: Sequence[Edge] = (),
    *,
    device: torch.device,
) -> Batch:
    """Packs questions and copies them to the device."""
    packed: list[PackedQuestion] = []
    more_ids: list[int] = []
    for row, (lo, hi), further in questions:
        start = len(more_ids)
        more_ids += further
        packed.append(PackedQuestion(row, lo, hi, start, len(more_ids)))
    addresses = [row.data_ptr() for row in rows]
    arrays = [np.array(values, np.int64) for values in (addresses, packed, more_ids)]
    arrays.append(np.array(edges, np.int64).reshape(-1, len(Edge._fields)))
    return Batch(tuple(rows), tuple(questions), *(torch.from_numpy(array).to(device) for array in arrays))


def compute_scores(scorer: Scorer, batch: Batch) -> RowScores:
    """The answers to a batch, copied to the host."""
    answers: _Floats = scorer(batch).cpu().numpy().astype(np.float64)
    ends = len(batch.questions) * np.arange(1, 5)
    totals, masses, best_logits, best_ids, edge_logits = np.split(answers, ends)
    return RowScores(totals, masses, best_logits, best_ids.astype(np.int64), edge_logits)
