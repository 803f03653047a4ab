"""Both samplers behind one interface, so that each test runs with both."""

from collections.abc import Sequence
from typing import Any, Protocol

import pytest
import torch

from inference.healing.covering import Crossing, Rule
from inference.model.language_model import RandomSource, SampleRequest, SampleResult, Sampling
from inference.model.numpy_sampler import NumpySampler
from inference.model.pytorch.sampler import TorchSampler
from inference.model.pytorch.scoring import PlainScorer, TokenRanks
from tests.support.toys import ToyTokenizer
from trie_cache.hot_prefixes import HotPrefixCache

SAMPLERS = ("numpy", "torch")
GREEDY = Sampling(temperature=0.0, top_p=1.0)

both_samplers = pytest.mark.parametrize("name", SAMPLERS)


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


def may_follow(toy: ToyTokenizer, token_id: int, crossing: Crossing) -> bool:
    """Applies the rules to one token."""
    token = toy.vocabulary.token_bytes[token_id]
    if not crossing.remaining_bytes:
        return bool(token) or token_id in toy.vocabulary.special_ids
    if crossing.rule is Rule.CROSS:
        return token.startswith(crossing.remaining_bytes) and token != crossing.remaining_bytes
    begins = bool(token) and crossing.remaining_bytes.startswith(token) and crossing.rule is Rule.SPELL
    return token.startswith(crossing.remaining_bytes) or begins


def find_log_probs(toy: ToyTokenizer, logits: torch.Tensor) -> torch.Tensor:
    """Returns the log probabilities of rows of logits; padding has none."""
    every = Crossing(None, b"", Rule.EXTEND)
    is_token = torch.tensor([may_follow(toy, token_id, every) for token_id in range(toy.num_rows)])
    return torch.log_softmax(logits.double().masked_fill(~is_token, -torch.inf), dim=-1)
