"""What only the sampler for GPUs has: tensors on another device, its rows and its random sources."""

import numpy as np
import pytest
import torch

from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SampleRequest, SampleResult, Sampling
from inference.model.pytorch.sampler import TorchSampler
from inference.model.pytorch.scoring import Batch, TokenRanks
from tests.support.other_device import DeviceTensor, register_device, run_kernel
from tests.support.samplers import NumpyScorer
from tests.support.toys import toy_tokenizer

_CPU = torch.device("cpu")
_GREEDY = Sampling(temperature=0.0, top_p=1.0)
_EXACT = Sampling(temperature=1.0, top_p=1.0)
_HEAD = Sampling(temperature=1.0, top_p=0.6)

_TREE = TokenTree((4,), (5, 6, 7), (None, 0, None))
_CROSSINGS = (
    Crossing(None, b"te", Rule.SPELL),
    Crossing(0, b"", Rule.CROSS),
    Crossing(1, b"t", Rule.CROSS),
    Crossing(2, b"s", Rule.EXTEND),
)


class _DeviceScorer:
    """The kernels of the device, or of the CPU."""

    def __call__(self, batch: Batch) -> torch.Tensor:
        toy = toy_tokenizer("qwen")
        score = NumpyScorer(TokenRanks(toy.vocabulary, toy.trie, _CPU))
        is_on_cpu = batch.addresses.device == _CPU
        return score(batch) if is_on_cpu else run_kernel(score, batch)


def _build_sampler(device: torch.device = _CPU) -> TorchSampler:
    toy = toy_tokenizer("qwen")
    return TorchSampler(toy.vocabulary, toy.trie, TokenRanks(toy.vocabulary, toy.trie, device), _DeviceScorer())


def _make_logits(num_rows: int = 4, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(num_rows, toy_tokenizer("qwen").num_rows, generator=generator)).to(dtype)


def _build_request(rows: list[torch.Tensor], sampling: Sampling, num_choices: int = 1, seed: int = 3) -> SampleRequest:
    sources = tuple(np.random.default_rng(seed + index) for index in range(num_choices))
    return SampleRequest(_TREE, _CROSSINGS, rows, sampling, sources)


def _choose(sampler: TorchSampler, logits: list[torch.Tensor], asked: list[tuple[Sampling, int]]) -> list[SampleResult]:
    """The results of some requests of one choice."""
    return sampler.choose(
        [
            _build_request(sampler.build_rows(own), sampling, num_choices)
            for own, (sampling, num_choices) in zip(logits, asked, strict=True)
        ]
    )


def test_choices_on_the_device_are_those_on_the_cpu() -> None:
    asked = [(_GREEDY, 1), (_GREEDY, 4), (_HEAD, 3), (_HEAD, 1), (_EXACT, 1), (_EXACT, 5)]
    logits = [_make_logits(seed=index) for index in range(len(asked))]
    with torch.inference_mode():
        results = _choose(_build_sampler(register_device()), [DeviceTensor(each) for each in logits], asked)

    assert [len(result.choices) for result in results] == [num_choices for _, num_choices in asked]
    assert [each.choices for each in results] == [each.choices for each in _choose(_build_sampler(), logits, asked)]


@pytest.mark.parametrize("num_rows", [0, 1, 5])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rows_have_the_type_of_the_logits_and_memory_of_their_own(dtype: torch.dtype, num_rows: int) -> None:
    logits = _make_logits(num_rows, dtype)

    rows = _build_sampler().build_rows(logits.clone())

    assert len(rows) == num_rows
    for row, line in zip(rows, logits, strict=True):
        assert row.dtype == dtype
        assert torch.equal(row, line)
        assert row.nbytes == row.untyped_storage().nbytes() == len(line) * dtype.itemsize


def test_a_row_of_a_larger_pass_does_not_keep_the_memory_of_the_pass() -> None:
    [row] = _build_sampler().build_rows(_make_logits(3)[1:2])

    assert row.untyped_storage().nbytes() == row.nbytes


@pytest.mark.parametrize("sampling", [Sampling(5.0, 1.0), Sampling(5.0, 0.95)])
def test_a_draw_that_waits_for_a_branch_is_the_one_made_without_waiting(sampling: Sampling) -> None:
    sampler = _build_sampler()
    rows = sampler.build_rows(_make_logits())
    known = _build_request(rows, sampling, num_choices=3)
    waiting = _build_request(rows, sampling, num_choices=3)
    partly_read = SampleRequest(_TREE, _CROSSINGS, [rows[0], rows[1], None, None], sampling, waiting.random_sources)

    expected = sampler.choose([known])[0].choices
    [unsure] = sampler.choose([partly_read])
    [result] = sampler.choose([waiting])

    assert (unsure.choices, unsure.missing) == ((), (1, 2))
    assert result.choices == expected
