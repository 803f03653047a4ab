"""Scorers with right answers are accepted when a model is loaded, and wrong ones refused."""

from collections.abc import Callable, Sequence
from itertools import count

import pytest
import torch

from inference.errors import ModelError
from inference.model.pytorch.sampler import HostSampler, TorchSampler, check_sampler
from inference.model.pytorch.scoring import Batch, Scorer, TokenRanks
from tests.support.choice_cases import KERNEL_TYPES, make_vocabulary
from tests.support.samplers import NumpyScorer

_Spoil = Callable[[Sequence[torch.Tensor]], torch.Tensor]


def check(num_logits: int, dtype: torch.dtype, build_scorer: Callable[[TokenRanks], Scorer]) -> None:
    vocabulary, trie = make_vocabulary(num_logits)
    ranks = TokenRanks(vocabulary, trie, torch.device("cpu"), chunk_size=64)
    logits = (4 * torch.randn(3, num_logits, generator=torch.Generator().manual_seed(0))).to(dtype)
    sampler = TorchSampler(vocabulary, trie, ranks, build_scorer(ranks))
    check_sampler(sampler, HostSampler(vocabulary, trie), trie, logits)


@pytest.mark.parametrize("num_logits", [1, 2, 5, 64, 300])
@pytest.mark.parametrize("dtype", KERNEL_TYPES, ids=str)
def test_a_scorer_with_right_answers_is_accepted(dtype: torch.dtype, num_logits: int) -> None:
    check(num_logits, dtype, NumpyScorer)


class _WrongScorer(NumpyScorer):
    """Answers right but for one kind of answer."""

    def __init__(self, ranks: TokenRanks, kind: int, spoil: _Spoil) -> None:
        super().__init__(ranks)
        self._kind = kind
        self._spoil = spoil

    def __call__(self, batch: Batch) -> torch.Tensor:
        sizes = [len(batch.questions)] * 4 + [len(batch.edges)]
        answers = super().__call__(batch)
        parts = torch.split(answers, sizes)
        parts[self._kind].copy_(self._spoil(parts))
        return answers


@pytest.mark.parametrize(
    ("kind", "spoil", "fault"),
    [
        (0, lambda parts: parts[0] + 0.01, "its log_masses are"),
        (1, lambda parts: parts[1] + 1, "its log_masses are"),
        (2, lambda parts: parts[2] + torch.nan, "its best_log_probs are .* nan"),
        (3, lambda parts: (parts[3] + 2) % 300, "its best_ids are"),
        (4, lambda parts: parts[4] + torch.nan, "its log_masses are .* nan"),
    ],
    ids=count(),
)
def test_a_wrong_answer_is_refused_with_its_name(kind: int, spoil: _Spoil, fault: str) -> None:
    with pytest.raises(ModelError, match=f"^on cpu, choices among bfloat16 logits are wrong: .*{fault}"):
        check(300, torch.bfloat16, lambda ranks: _WrongScorer(ranks, kind, spoil))
