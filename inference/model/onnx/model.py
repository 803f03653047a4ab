"""A `LanguageModel` that runs on onnxruntime, without torch."""

from collections.abc import Sequence

import numpy as np

from inference.model.language_model import Part, SampleRequest, SampleResult
from inference.model.numpy_sampler import NumpyRow, NumpySampler
from inference.model.onnx.kv_cache import OnnxSequenceCache
from inference.model.onnx.runner import OnnxRunner
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary


class OnnxModel:
    """A `LanguageModel` on the CPU. Each sequence is run by itself, so it does not depend on its neighbours."""

    runs_together = False

    def __init__(self, runner: OnnxRunner, vocabulary: Vocabulary, trie: Trie) -> None:
        self.max_tokens = runner.max_tokens
        self._runner = runner
        self._sampler = NumpySampler(vocabulary, HotPrefixCache(trie), trie)

    def new_cache(self, num_tokens: int = 256) -> OnnxSequenceCache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        return self._runner.new_cache(num_tokens)

    def new_random_source(self, seed: int | None) -> np.random.Generator:
        """A random source for one candidate. `None` seeds it from the system."""
        return self._sampler.new_random_source(seed)

    def forward(self, parts: Sequence[Part]) -> list[list[NumpyRow]]:
        """Forwards the parts one after the other. Returns the rows of each part that wants them.

        Raises OverloadedError; the kept tokens of the caches are then unchanged.
        """
        return [self._sampler.build_rows(np.stack(rows)) if rows else [] for rows in self._runner.forward(parts)]

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request."""
        return self._sampler.choose(requests)
