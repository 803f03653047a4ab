"""A `LanguageModel` that runs on torch, with a runner and a sampler."""

from collections.abc import Sequence
from typing import Any, Protocol

from inference.model.language_model import Part, RandomSource, SampleRequest, SampleResult
from inference.model.numpy_sampler import NumpySampler
from inference.model.pytorch.choice.sampler import TorchSampler
from inference.model.pytorch.choice.scorer_loader import build_scorer
from inference.model.pytorch.memory import refusing_when_out_of_memory
from inference.model.pytorch.pool.kv_cache import SequenceCache
from inference.model.pytorch.runner import Runner
from inference.model.pytorch.scoring.token_ranks import TokenRanks
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary


class _Sampler(Protocol):
    """Chooses tokens from rows that it has built."""

    def new_random_source(self, seed: int | None) -> RandomSource: ...

    def build_rows(self, logits: Any) -> Sequence[Any]: ...

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]: ...


class TorchModel:
    """A `LanguageModel` on one torch device. On the CPU, tokens are chosen with NumPy."""

    runs_together = True

    def __init__(self, runner: Runner, vocabulary: Vocabulary, trie: Trie) -> None:
        """Raises ModelError if the kernels that choose tokens on the runner's device do not work."""
        self.max_tokens = runner.max_tokens
        self._runner = runner
        self._is_on_cpu = runner.device.type == "cpu"
        self._sampler = _build_sampler(runner, vocabulary, trie)

    def new_cache(self, num_tokens: int = 256) -> SequenceCache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        return self._runner.new_cache(num_tokens)

    def new_random_source(self, seed: int | None) -> RandomSource:
        """A random source for one candidate. `None` seeds it from the system."""
        return self._sampler.new_random_source(seed)

    def forward(self, parts: Sequence[Part]) -> list[list[Any]]:
        """Forwards all parts in one pass. Returns the rows of each part that wants them.

        Raises OverloadedError; the kept tokens of the caches are then unchanged.
        """
        with refusing_when_out_of_memory(f"a step of {len(parts)} sequences"):
            logits = self._runner.forward(parts)
            rows = iter(self._sampler.build_rows(logits.float().numpy() if self._is_on_cpu else logits))
        return [[next(rows) for _ in range(part.num_logit_rows)] for part in parts]

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request."""
        with refusing_when_out_of_memory(f"the choices of {len(requests)} requests"):
            return self._sampler.choose(requests)


def _build_sampler(runner: Runner, vocabulary: Vocabulary, trie: Trie) -> _Sampler:
    hot_prefixes = HotPrefixCache(trie)
    if runner.device.type == "cpu":
        return NumpySampler(vocabulary, hot_prefixes, trie)
    ranks = TokenRanks(vocabulary, trie, runner.device)
    return TorchSampler(trie, hot_prefixes, ranks, build_scorer(ranks, runner.dtype))
