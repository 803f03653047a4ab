"""The kernels of a choice beside torch's operations, and what the compiler makes of them for a GPU.

`test_scoring.py` compares both with brute force.
"""

import pytest
import torch

from inference.model.pytorch.scoring import PlainScorer, Question, TokenRanks, build_batch, check_scorer
from tests.support.choice_cases import (
    KERNEL_TYPES,
    assert_draws_agree,
    build_case,
    make_draws,
    make_rows,
    make_vocabulary,
)
from tests.support.kernels import compiled, compiling, interpreted

_NUM_THREADS = 128  # of a program: 4 warps
_NUM_REGISTERS = 65_536  # of a multiprocessor of sm_90
_NUM_LOGITS = 151_936

pytestmark = [  # of the interpreter, which computes with NumPy
    pytest.mark.filterwarnings("ignore:divide by zero encountered in log:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"),
]
of_each_type = pytest.mark.parametrize("dtype", KERNEL_TYPES, ids=str)


@interpreted
@of_each_type
def test_rows_of_real_length_have_the_answers_of_torchs_operations(dtype: torch.dtype) -> None:
    from inference.model.pytorch.choice_kernel import KernelScorer

    ranks = TokenRanks(*make_vocabulary(_NUM_LOGITS), torch.device("cpu"))
    check_scorer(KernelScorer(ranks), PlainScorer(ranks), ranks, dtype)


@interpreted
@of_each_type
def test_draws_are_those_of_torchs_operations(dtype: torch.dtype) -> None:
    from inference.model.pytorch.choice_kernel import KernelScorer

    case = make_draws(build_case(dtype, 200, 64), 100, 0.7, seed=2**62 + 11)
    assert_draws_agree(case, KernelScorer(case.ranks), PlainScorer(case.ranks))


@compiled
@of_each_type
def test_the_kernels_fit_on_a_processor_and_read_sixteen_bytes_at_once(dtype: torch.dtype) -> None:
    """No register is spilled. Five programs that read logits fit: fewer would not hide the memory's latency."""
    from inference.model.pytorch.choice_kernel import KernelScorer

    ranks = TokenRanks(*make_vocabulary(_NUM_LOGITS), torch.device("cpu"))
    batch = build_batch(make_rows(1, _NUM_LOGITS, dtype, 1.0), [Question(0, ranks.all_tokens)], device=ranks.device)
    with compiling() as driver:
        KernelScorer(ranks).score(batch)

    score, merge = driver.launches
    assert (score.kernel, merge.kernel) == ("score_chunks", "merge_chunks")
    assert score.num_spilled_bytes == merge.num_spilled_bytes == 0
    registers = -(-score.num_registers // 8) * 8  # they are given out by eights
    assert 5 * registers * _NUM_THREADS <= _NUM_REGISTERS
    assert score.num_shared_bytes <= 4096
    num_loads = 16 // (16 // dtype.itemsize) + 4  # each thread reads 16 logits, and 16 ranks of 4 bytes
    assert score.num_vector_loads >= num_loads
    assert merge.num_vector_loads >= num_loads
