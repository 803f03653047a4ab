"""Right scorers are accepted when a model is loaded, and wrong ones refused."""

from collections.abc import Callable, Sequence
from itertools import count

import pytest
import torch

from inference.errors import ModelError
from inference.model.pytorch.scoring import Batch, TokenRanks, check_scorer
from tests.support.choice_cases import KERNEL_TYPES, make_vocabulary
from tests.support.samplers import NumpyScorer

_Spoil = Callable[[Sequence[torch.Tensor]], torch.Tensor]


def _build_ranks(num_logits: int) -> TokenRanks:
    return TokenRanks(*make_vocabulary(num_logits), torch.device("cpu"), chunk_size=64)


@pytest.mark.parametrize("num_logits", [1, 2, 5, 64, 300])
@pytest.mark.parametrize("dtype", KERNEL_TYPES, ids=str)
def test_a_scorer_with_right_answers_is_accepted(dtype: torch.dtype, num_logits: int) -> None:
    ranks = _build_ranks(num_logits)
    check_scorer(NumpyScorer(ranks), ranks, dtype)


class _WrongScorer(NumpyScorer):
    """Answers right but for one kind of answer."""

    def __init__(self, ranks: TokenRanks, kind: int, spoil: _Spoil) -> None:
        super().__init__(ranks)
        self._kind = kind
        self._spoil = spoil

    def score(self, batch: Batch) -> torch.Tensor:
        sizes = [len(batch.questions)] * 4 + [len(batch.draws)] * 2 + [len(batch.edges)]
        answers = super().score(batch)
        parts = torch.split(answers, sizes)
        parts[self._kind].copy_(self._spoil(parts))
        return answers


@pytest.mark.parametrize(
    ("kind", "spoil", "fault"),
    [
        (0, lambda parts: parts[0] + 0.01, "its log_totals differ by 0.01 "),
        (1, lambda parts: parts[1] + 1, "its log_masses differ by 1 "),
        (2, lambda parts: parts[2] + torch.nan, "its best_logits differ by nan "),
        (3, lambda parts: parts[3] + 2, "its best_ids differ by 2 "),
        (4, lambda parts: parts[4] + 1, "its draw_scores have no Gumbel noise"),
        (4, lambda parts: torch.full_like(parts[4], torch.nan), "its draw_scores have no Gumbel noise"),
        (4, lambda parts: parts[4] + 0.001 * torch.rand_like(parts[4]), "have other scores when they are repeated"),
        (5, lambda parts: parts[5] + 1, r"only \d+ of its 384 draws are allowed tokens"),
        (5, lambda parts: parts[5].clip(0), r"only 288 of its 384 draws are allowed tokens"),
        (5, lambda parts: parts[3].repeat_interleave(16).repeat(2), "do not follow the weights"),
        (6, lambda parts: parts[6] + torch.nan, "its edge_logits differ by nan "),
    ],
    ids=count(),
)
def test_a_wrong_answer_is_refused_with_its_name(kind: int, spoil: _Spoil, fault: str) -> None:
    ranks = _build_ranks(300)
    with pytest.raises(ModelError, match=f"_WrongScorer .* bfloat16 logits on cpu: .*{fault}"):
        check_scorer(_WrongScorer(ranks, kind, spoil), ranks, torch.bfloat16)
