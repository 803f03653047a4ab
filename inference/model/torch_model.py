"""A `LanguageModel` that runs on torch, with a runner and a sampler."""

from collections.abc import Sequence

import torch

from inference.model.kv_cache import SequenceCache
from inference.model.language_model import SampleResult, Step
from inference.model.memory import refusing_when_out_of_memory
from inference.model.runner import Part, Runner
from inference.model.sampler import Sampler


class TorchModel:
    """A `LanguageModel` on one torch device."""

    def __init__(self, runner: Runner, sampler: Sampler) -> None:
        self.max_tokens = runner.max_tokens
        self._runner = runner
        self._sampler = sampler

    def new_cache(self, num_tokens: int = 256) -> SequenceCache:
        """An empty cache with room for `num_tokens`. Raises OverloadedError."""
        return self._runner.new_cache(num_tokens)

    def new_random_source(self, seed: int | None) -> torch.Generator:
        """A generator for one candidate. `None` seeds it from the system."""
        generator = torch.Generator(self._runner.device)
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)
        return generator

    def step(self, steps: Sequence[Step]) -> list[SampleResult | None]:
        """Forwards all steps in one pass. Returns one result per step, None if its `sample` is None.

        Raises OverloadedError; the caches are then unchanged.
        """
        with refusing_when_out_of_memory(f"a step of {len(steps)} sequences"):
            logits = self._runner.forward([_build_part(step) for step in steps])
            results = iter(self._sampler.choose([step.sample for step in steps if step.sample is not None], logits))
        return [None if step.sample is None else next(results) for step in steps]


def _build_part(step: Step) -> Part:
    assert isinstance(step.cache, SequenceCache), "every cache comes from new_cache"
    return Part(step.cache, step.tree, wants_logits=step.sample is not None)
