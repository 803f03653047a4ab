"""Scorers with right answers are accepted when a model is loaded, and wrong ones refused."""

from collections.abc import Callable
from itertools import count

import pytest
import torch

from inference.errors import ModelError
from inference.model.pytorch.sampler import HostSampler, TorchSampler, check_sampler
from inference.model.pytorch.scoring import Batch, Scorer, TokenRanks
from tests.support.choice_cases import KERNEL_TYPES, make_vocabulary
from tests.support.samplers import NumpyScorer

_Spoil = Callable[[torch.Tensor], torch.Tensor]


def check(num_logits: int, dtype: torch.dtype, build_scorer: Callable[[TokenRanks], Scorer]) -> None:
    vocabulary, trie = make_vocabulary(num_logits)
    ranks = TokenRanks(vocabulary, trie, torch.device("cpu"), chunk_size=64)
    logits = (4 * torch.randn(3, num_logits, generator=torch.Generator().manual_seed(0))).to(dtype)
    sampler = TorchSampler(vocabulary, trie, ranks, build_scorer(ranks))
    check_sampler(sampler, HostSampler(vocabulary, trie), trie, logits)


@pytest.mark.parametrize("num_logits", [1, 2, 5, 64, 300])
@pytest.mark.parametrize("dtype", KERNEL_TYPES, ids=str)
def test_a_scorer_with_right_answers_is_accepted(dtype: torch.dtype, num_logits: int) -> None:
    check(num_logits, dtype, lambda ranks: NumpyScorer(ranks).score)


class _WrongScorer(NumpyScorer):
    """Answers right but for one kind of answer."""

    def __init__(self, ranks: TokenRanks, kind: int, spoil: _Spoil) -> None:
        super().__init__(ranks)
        self._kind = kind
        self._spoil = spoil

    def score(self, batch: Batch) -> torch.Tensor:
        answers = super().score(batch)
        answers[self._kind] = self._spoil(answers[self._kind])
        return answers


@pytest.mark.parametrize(
    ("kind", "spoil", "fault"),
    [
        (0, lambda totals: totals + 0.01, "its best_log_probs are"),
        (1, lambda bests: bests + torch.nan, "its best_log_probs are .*nan"),
        (2, lambda ids: (ids + 2) % 300, "its best_ids are"),
    ],
    ids=count(),
)
def test_a_wrong_answer_is_refused_with_its_name(kind: int, spoil: _Spoil, fault: str) -> None:
    with pytest.raises(ModelError, match=f"^on cpu, choices among bfloat16 logits are wrong: .*{fault}"):
        check(300, torch.bfloat16, lambda ranks: _WrongScorer(ranks, kind, spoil).score)
