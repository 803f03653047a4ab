"""Which scorer a device gets, and that wrong kernels are refused when a model is loaded."""

import pytest
import torch

from inference.errors import ModelError
from inference.model.pytorch.sampler import build_scorer
from inference.model.pytorch.scoring import NUM_ANSWERS, Batch, PlainScorer, TokenRanks, check_scorer
from tests.support.choice_cases import make_vocabulary

_CPU = torch.device("cpu")


class _WrongScorer:
    """Answers right but for one number of each question, or for the draws."""

    def __init__(self, right: PlainScorer, answer: int | None, error: float) -> None:
        self._right = right
        self._answer = answer
        self._error = error

    def score(self, batch: Batch) -> torch.Tensor:
        answers = self._right.score(batch).clone()
        draws_at = NUM_ANSWERS * batch.num_questions
        if self._answer is None:
            answers[draws_at + 1 : draws_at + 2 * batch.num_draws : 2] += self._error  # their ids
        else:
            answers[self._answer : draws_at : NUM_ANSWERS] += self._error
        return answers


def _build_ranks(num_logits: int = 300) -> TokenRanks:
    return TokenRanks(*make_vocabulary(num_logits), _CPU, chunk_size=64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_device_without_kernels_gets_torchs_operations(dtype: torch.dtype) -> None:
    assert isinstance(build_scorer(_build_ranks(), dtype), PlainScorer)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_whose_kernels_cannot_be_compiled_is_refused() -> None:
    ranks = _build_ranks()
    ranks.device = torch.device("cuda")

    with pytest.raises(ModelError, match=r"the kernels score_chunks and merge_chunks cannot be used on cuda: .+"):
        build_scorer(ranks, torch.bfloat16)


@pytest.mark.parametrize("num_logits", [1, 2, 5, 64, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_scorer_with_right_answers_is_accepted(dtype: torch.dtype, num_logits: int) -> None:
    ranks = _build_ranks(num_logits)

    check_scorer(PlainScorer(ranks), PlainScorer(ranks), ranks, dtype)


@pytest.mark.parametrize(
    ("answer", "name"), [(0, "log_totals"), (1, "log_masses"), (2, "best_logits"), (3, "best_ids")]
)
@pytest.mark.parametrize("error", [0.01, 1.0, torch.nan])
def test_a_wrong_answer_is_refused_with_its_name_and_the_difference(answer: int, name: str, error: float) -> None:
    ranks = _build_ranks()
    right = PlainScorer(ranks)
    if name == "best_ids":
        error = 2.0  # ids are whole numbers

    with pytest.raises(ModelError, match=rf"_WrongScorer .* bfloat16 logits on cpu: its {name} differ by "):
        check_scorer(_WrongScorer(right, answer, error), right, ranks, torch.bfloat16)


def test_wrong_draws_are_refused() -> None:
    ranks = _build_ranks()
    right = PlainScorer(ranks)

    with pytest.raises(ModelError, match=r"only 0 of its \d+ draws"):
        check_scorer(_WrongScorer(right, None, 1.0), right, ranks, torch.bfloat16)
