"""An engine whose parts a test can inspect, block and break."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.job_builder import JobBuilder
from inference.healing.token_tree import TokenTree
from inference.model.kv_cache import SequenceCache
from inference.model.loader import load_runner
from inference.model.runner import Part, Runner
from inference.model.sampler import Sampler
from inference.model.torch_model import TorchModel
from inference.protocol.completion import Extent
from tests.support.scripted_model import ScriptedModel
from tests.support.toys import ToyTokenizer, build_prompts, toy_tokenizer
from trie_cache.hot_prefixes import HotPrefixCache

UNBOUNDED = Extent.BLOCK  # after a prefix without indentation, nothing ends a block


class WatchedCache(SequenceCache):
    """A cache that records which tokens it keeps."""

    token_ids: list[int]

    def keep(self, tree: TokenTree, node: int | None) -> None:
        super().keep(tree, node)
        self.token_ids += [*tree.chain_ids, *(tree.branch_ids[branch] for branch in tree.find_path(node))]


class WatchedRunner(Runner):
    """A real runner that a test can inspect, block and break."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model, torch.device("cpu"))
        self.caches: list[WatchedCache] = []  # one for each request, in the order in which they started
        self.batch_sizes: list[int] = []
        self.before_forward: Callable[[], None] = lambda: None

    def new_cache(self, num_tokens: int = 256) -> SequenceCache:
        cache = WatchedCache(self.layers, self.dtype, self.device, num_tokens)
        cache.token_ids = []
        self.caches.append(cache)
        return cache

    def forward(self, steps: Sequence[Part]) -> torch.Tensor:
        self.before_forward()
        self.batch_sizes.append(len(steps))
        return super().forward(steps)


@dataclasses.dataclass
class Clock:
    """A clock that changes only when the test sets it."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass
class Bench:
    """An engine and its parts."""

    toy: ToyTokenizer
    runner: WatchedRunner
    engine: Engine
    clock: Clock


@cache
def _load_model(folder: Path, dtype: str) -> torch.nn.Module:
    """Caches loaded models, because loading takes longer than most tests and no test changes the weights."""
    return load_runner(EngineConfig(folder, dtype=dtype))._model


def build_bench(folder: Path, kind: str, dtype: str = "float64", **settings: Any) -> Bench:
    toy, clock = toy_tokenizer(kind), Clock()
    config = EngineConfig(folder, dtype=dtype, **settings)
    runner = WatchedRunner(_load_model(folder, dtype))
    sampler = Sampler(toy.vocabulary, HotPrefixCache(toy.trie), toy.trie, torch.device("cpu"))
    return Bench(toy, runner, Engine(config, TorchModel(runner, sampler), build_prompts(toy), clock), clock)


@dataclasses.dataclass
class ScriptedBench:
    """An engine with a model without weights, and its parts."""

    model: ScriptedModel
    engine: Engine
    clock: Clock


def build_scripted_bench(max_tokens: int = 512, kind: str = "qwen", **settings: Any) -> ScriptedBench:
    """Builds a ScriptedBench. `max_tokens` is the model's window."""
    toy, clock = toy_tokenizer(kind), Clock()
    model = ScriptedModel(toy, max_tokens)
    engine = Engine(EngineConfig(Path("model"), **settings), model, build_prompts(toy), clock)
    return ScriptedBench(model, engine, clock)


def build_job_builder(max_tokens: int = 512, **settings: Any) -> JobBuilder:
    """Builds a JobBuilder for a model without weights. `max_tokens` is its window."""
    toy = toy_tokenizer("qwen")
    return JobBuilder(EngineConfig(Path("model"), **settings), ScriptedModel(toy, max_tokens), build_prompts(toy))


def assert_soon(event: threading.Event) -> None:
    assert event.wait(60)
