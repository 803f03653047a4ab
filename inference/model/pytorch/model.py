"""A `LanguageModel` that runs on torch, with a runner and a sampler."""

from collections.abc import Sequence
from typing import Any

from inference.model.language_model import Part, RandomSource, SampleRequest, SampleResult
from inference.model.pytorch.choice.sampler_loader import Sampler
from inference.model.pytorch.memory import refusing_when_out_of_memory
from inference.model.pytorch.pool.kv_cache import SequenceCache
from inference.model.pytorch.runner import Runner


class TorchModel:
    """A `LanguageModel` on one torch device."""

    runs_together = True

    def __init__(self, runner: Runner, sampler: Sampler) -> None:
        self.max_tokens = runner.max_tokens
        self._runner = runner
        self._sampler = sampler

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
            rows = iter(self._sampler.build_rows(self._runner.forward(parts)))
        return [[next(rows) for _ in range(part.num_logit_rows)] for part in parts]

    def choose(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """One result for each request."""
        with refusing_when_out_of_memory(f"the choices of {len(requests)} requests"):
            return self._sampler.choose(requests)
