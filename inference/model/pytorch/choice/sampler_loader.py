"""Which sampler chooses tokens on a device."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from inference.model.language_model import RandomSource, SampleRequest, SampleResult
from inference.model.numpy_sampler import NumpySampler
from inference.model.pytorch.choice.sampler import TorchSampler
from inference.model.pytorch.choice.scorer_loader import build_scorer
from inference.model.pytorch.scoring.token_ranks import TokenRanks
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary


class Sampler(Protocol):
    """Chooses tokens from rows that it has built."""

    def new_random_source(self, seed: int | None) -> RandomSource:
        """A random source for one candidate. `None` seeds it from the system."""
        ...

    def build_rows(self, logits: torch.Tensor) -> Sequence[Any]:
        """A row for each line of `logits`, [num_rows, vocab_size], device."""
        ...

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request."""
        ...


class _HostSampler(NumpySampler):
    """Chooses with NumPy, from tensors of the CPU."""

    def build_rows(self, logits: torch.Tensor) -> Sequence[Any]:  # type: ignore[override]  # here they are tensors
        return super().build_rows(logits.float().numpy())


def build_sampler(device: torch.device, dtype: torch.dtype, vocabulary: Vocabulary, trie: Trie) -> Sampler:
    """The sampler for logits of the type `dtype` on a device: NumPy on the CPU.

    Raises ModelError if the kernels that choose tokens on the device do not work.
    """
    hot_prefixes = HotPrefixCache(trie)
    if device.type == "cpu":
        return _HostSampler(vocabulary, hot_prefixes, trie)
    ranks = TokenRanks(vocabulary, trie, device)
    return TorchSampler(trie, hot_prefixes, ranks, build_scorer(ranks, dtype))
