"""The kernels of a choice: interpreted on the CPU, or compiled on a GPU. `make test-kernels` runs them interpreted."""

import dataclasses
import os

import pytest
import torch
from hypothesis import given

pytest.importorskip("triton", reason="triton cannot be imported; `make test-kernels` runs this")

from inference.model.pytorch.choice_kernel import KernelScorer
from inference.model.pytorch.scoring import Edge, PlainScorer, Question, TokenRanks, check_scorer
from tests.support.choice_cases import (
    KERNEL_TYPES,
    ChoiceCase,
    assert_draws_agree,
    assert_draws_follow_weights,
    assert_right,
    choice_cases,
    make_draws,
    make_rows,
    make_vocabulary,
)
from trie_cache.trie import Interval

_IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_DEVICE = "cpu" if _IS_INTERPRETED else "cuda"

pytestmark = [
    pytest.mark.skipif(
        not _IS_INTERPRETED and not torch.cuda.is_available(),
        reason="no GPU, and TRITON_INTERPRET is not 1; `make test-kernels` runs this",
    ),
    # Of the interpreter, which computes with NumPy.
    pytest.mark.filterwarnings("ignore:divide by zero encountered in log:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"),
]

of_each_type = pytest.mark.parametrize("dtype", KERNEL_TYPES, ids=str)


def _build_case(dtype: torch.dtype, num_logits: int = 60, chunk_size: int = 16) -> ChoiceCase:
    vocabulary, trie = make_vocabulary(num_logits)
    ranks = TokenRanks(vocabulary, trie, torch.device(_DEVICE), chunk_size)
    rows = make_rows(2, num_logits, dtype, 1.5)
    questions = [Question(0, ranks.all_tokens), Question(1, Interval(3, trie.num_tokens // 2))]
    return ChoiceCase(vocabulary, trie, ranks, rows, questions, [], [])


@given(case=choice_cases(KERNEL_TYPES, _DEVICE))
def test_all_answers_equal_those_by_brute_force(case: ChoiceCase) -> None:
    assert_right(case, case.find_scores(KernelScorer(case.ranks)))


@of_each_type
def test_tokens_beside_the_interval_are_allowed(dtype: torch.dtype) -> None:
    case = _build_case(dtype, 300)
    question = Question(0, case.trie.find_interval(b"abca"), case.trie.find_ancestors(b"abca"))
    case = dataclasses.replace(case, questions=[question, question._replace(row=1)])

    assert len(question.more_ids) > 2
    assert_right(case, case.find_scores(KernelScorer(case.ranks)))


@of_each_type
def test_rows_of_real_length_have_the_answers_of_torchs_operations(dtype: torch.dtype) -> None:
    vocabulary, trie = make_vocabulary(151_936)
    ranks = TokenRanks(vocabulary, trie, torch.device(_DEVICE))

    check_scorer(KernelScorer(ranks), PlainScorer(ranks), ranks, dtype)


@of_each_type
def test_draws_are_those_of_torchs_operations(dtype: torch.dtype) -> None:
    case = make_draws(_build_case(dtype, 200, 64), 100, 0.7, seed=2**62 + 11)

    assert_draws_agree(case, KernelScorer(case.ranks), PlainScorer(case.ranks))


def test_draws_follow_the_weights_of_the_allowed_tokens() -> None:
    case = _build_case(torch.bfloat16)
    case = make_draws(dataclasses.replace(case, questions=case.questions[1:]), 700, 1.0)

    assert_draws_follow_weights(case, case.find_scores(KernelScorer(case.ranks)))


@of_each_type
def test_many_edges_have_their_logits(dtype: torch.dtype) -> None:
    case = _build_case(dtype)
    edges = [Edge(row, token_id) for row in range(2) for token_id in range(60)] * 3
    case = dataclasses.replace(case, edges=edges)

    assert_right(case, case.find_scores(KernelScorer(case.ranks)))


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # the interpreter's
def test_a_logit_that_is_no_number_makes_the_total_no_number() -> None:
    """The sampler refuses such rows."""
    case = _build_case(torch.bfloat16)
    case.rows[1][13] = torch.nan
    case.rows[0][40] = torch.inf

    log_totals = case.find_scores(KernelScorer(case.ranks)).log_totals

    assert not torch.from_numpy(log_totals).isfinite().any()
