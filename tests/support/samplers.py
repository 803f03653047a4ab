"""Both samplers behind one interface, so that each test runs with both."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from inference.model.language_model import RandomSource, SampleRequest, SampleResult
from inference.model.numpy_sampler import NumpySampler
from inference.model.pytorch.sampler import TorchSampler
from inference.model.pytorch.scoring import PlainScorer, TokenRanks
from tests.support.toys import ToyTokenizer
from trie_cache.hot_prefixes import HotPrefixCache

SAMPLERS = ("numpy", "torch")


class AnySampler(Protocol):
    """What both samplers have."""

    def new_random_source(self, seed: int | None) -> RandomSource: ...

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]: ...


def build_sampler(name: str, toy: ToyTokenizer) -> AnySampler:
    """Builds the sampler of that name on the CPU, with an empty hot-prefix cache."""
    hot_prefixes = HotPrefixCache(toy.trie)
    if name == "numpy":
        return NumpySampler(toy.vocabulary, hot_prefixes, toy.trie)
    ranks = TokenRanks(toy.vocabulary, toy.trie, torch.device("cpu"), chunk_size=256)
    return TorchSampler(toy.trie, hot_prefixes, ranks, PlainScorer(ranks))


def build_rows(sampler: AnySampler, logits: torch.Tensor) -> Sequence[Any]:
    """Returns the sampler's rows for a copy of [num_rows, vocab_size] logits."""
    if isinstance(sampler, NumpySampler):
        return sampler.build_rows(logits.float().numpy().copy())
    assert isinstance(sampler, TorchSampler)
    return sampler.build_rows(logits)
