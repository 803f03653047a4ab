"""The kernels of a choice in the interpreter of their language, and what the compiler makes of them for a GPU."""

import dataclasses
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given

from inference.model.pytorch.sampler import HostSampler, TorchSampler, check_sampler
from inference.model.pytorch.scoring import (
    Edge,
    RowQuestion,
    TokenRanks,
    build_batch,
)
from tests.support.choice_cases import (
    KERNEL_TYPES,
    ChoiceCase,
    assert_right,
    build_case,
    choice_cases,
    make_rows,
    make_vocabulary,
)
from tests.support.kernels import compiled, compiling, interpreted
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_NUM_THREADS = 128  # of a program: 4 warps
_NUM_REGISTERS = 65_536  # of a multiprocessor of sm_90
_NUM_LOGITS = 151_936

pytestmark = [  # of the interpreter, which computes with NumPy
    pytest.mark.filterwarnings("ignore:divide by zero encountered in log:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"),
]
of_each_type = pytest.mark.parametrize("dtype", KERNEL_TYPES, ids=str)


def _build_scorer(ranks: TokenRanks) -> Any:
    from inference.model.pytorch.choice_kernel import score_batch

    return partial(score_batch, ranks)


@interpreted
@given(case=choice_cases(KERNEL_TYPES))
def test_all_answers_are_right(case: ChoiceCase) -> None:
    assert_right(case, _build_scorer(case.ranks))


@interpreted
@of_each_type
def test_many_edges_and_tokens_beside_an_interval_have_their_answers(dtype: torch.dtype) -> None:
    case = build_case(dtype, 300)
    question = RowQuestion(0, case.trie.find_interval(b"abca"), case.trie.find_ancestors(b"abca"))
    edges = [Edge(row, token_id) for row in range(2) for token_id in range(100)]
    case = dataclasses.replace(case, questions=[question, question._replace(row=1)], edges=edges)
    assert len(question.more_ids) > 2
    assert_right(case, _build_scorer(case.ranks))


@interpreted
def test_rows_of_real_length_pass_the_check_when_a_model_is_loaded() -> None:
    tokens = {index: b"%d" % index for index in range(50_000)}
    vocabulary = Vocabulary.from_tokens(tokens, {"<end>": 7}, num_rows=50_257)
    trie = Trie.build(vocabulary)
    ranks, host = TokenRanks(vocabulary, trie, torch.device("cpu")), HostSampler(vocabulary, trie)
    logits = 4 * torch.randn(3, 50_257, generator=torch.Generator().manual_seed(0))
    check_sampler(TorchSampler(vocabulary, trie, ranks, _build_scorer(ranks)), host, trie, logits.to(torch.bfloat16))


@compiled
@of_each_type
def test_the_kernels_fit_on_a_processor_and_read_sixteen_bytes_at_once(dtype: torch.dtype) -> None:
    """No register is spilled. Five programs that read logits fit: fewer would not hide the memory's latency."""
    ranks = TokenRanks(*make_vocabulary(_NUM_LOGITS), torch.device("cpu"))
    batch = build_batch(make_rows(1, _NUM_LOGITS, dtype, 1.0), [RowQuestion(0, ranks.all_tokens)], device=ranks.device)
    with compiling() as driver:
        _build_scorer(ranks)(batch)

    score, merge = driver.launches
    assert (score.kernel, merge.kernel) == ("score_chunks", "merge_chunks")
    assert score.num_spilled_bytes == merge.num_spilled_bytes == 0
    registers = -(-score.num_registers // 8) * 8  # they are given out by eights
    assert 5 * registers * _NUM_THREADS <= _NUM_REGISTERS
    assert score.num_shared_bytes <= 4096
    num_loads = 16 // (16 // dtype.itemsize) + 4  # each thread reads 16 logits, and 16 ranks of 4 bytes
    assert score.num_vector_loads >= num_loads
