"""What a choice asks of rows of logits, packed for a device. Nothing is chosen here.

The questions of one choice are one copy to the device, and one copy brings all answers to the host.
The kernels of `choice_kernel` answer them on a GPU.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from inference.model.pytorch.device import copy_together
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
        self.all_tokens = Interval(0, trie.num_tokens + 1)  # special ones too
        self.num_leading = int(np.append(is_token, False).argmin())  # the ids from 0 that are tokens without a gap
        self.num_chunks = -(-self.num_logits // chunk_size)
        ranks = np.full(self.num_chunks * chunk_size, -1, np.int32)
        ranks[: self.num_logits][is_token] = trie.rank[is_token]
        self.ranks = torch.from_numpy(ranks).to(device)  # [num_chunks * chunk_size] int32, -1 for ids without a token


# Hot path: a named tuple is created in a third of the time of a frozen dataclass.
class Question(NamedTuple):
    """One row of logits, and which of its tokens are allowed."""

    row: torch.Tensor  # [vocab_size], contiguous, device
    interval: Interval  # of ranks; `TokenRanks.all_tokens` for no limit
    more_ids: tuple[int, ...] = ()  # tokens outside the interval that are allowed too


class PackedQuestion(NamedTuple):
    """The columns of `Batch.questions`."""

    address: int  # of the row's memory
    lo: int  # of the interval
    hi: int
    first_more: int  # of its further ids, in `Batch.more_ids`
    end_more: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Questions about rows of one type. The tensors of int64 were copied to the device together."""

    rows: tuple[torch.Tensor, ...]  # of each question
    questions: torch.Tensor  # [num_questions, len(PackedQuestion._fields)] int64, device
    more_ids: torch.Tensor  # [num_more] int64, device: the ids that questions allow beside their intervals


# Answers the questions of a batch: [3, num_questions] float32 or float64, device. For each question
# - the log-sum-exp of all tokens of the row
# - the greatest logit of the allowed tokens; -inf if there are none
# - the smallest id with this logit; -1 if there are none.
Scorer = Callable[[Batch], torch.Tensor]


def build_batch(questions: Iterable[Question], device: torch.device) -> Batch:
    """Packs questions and copies them to the device."""
    rows: list[torch.Tensor] = []
    packed: list[PackedQuestion] = []
    more_ids: list[int] = []
    for row, (lo, hi), further in questions:
        rows.append(row)
        packed.append(PackedQuestion(row.data_ptr(), lo, hi, len(more_ids), len(more_ids) + len(further)))
        more_ids += further
    return Batch(tuple(rows), *copy_together([np.array(each, np.int64) for each in (packed, more_ids)], device))
