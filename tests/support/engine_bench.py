"""An engine whose parts a test can inspect, block and break."""

import dataclasses
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.engine.job import ChunkSink, Job
from inference.engine.local_executor import LocalExecutor, start_engine
from inference.engine.prompt import PromptBuilder
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequencePart
from inference.model.pytorch.loader import load_transformers_model
from inference.model.pytorch.model import TokenKV, TorchModel, TorchRow, TorchSequenceCache, TorchTokens
from inference.protocol.completion import CompletionRequest, Extent
from tests.support.scripted_model import ScriptedModel
from tests.support.sinks import CollectingSink, submit
from tests.support.toys import ToyTokenizer, build_prompts, toy_tokenizer

UNBOUNDED = Extent.BLOCK  # after a prefix without indentation, nothing ends a block


class WatchedCache(TorchSequenceCache):
    """A cache that records which tokens it keeps, and fails when the test says so."""

    owner: "WatchedModel"
    token_ids: list[int]

    def reserve(self, num_new: int) -> None:
        self.owner.before_cache("reserve")
        super().reserve(num_new)

    def fork(self, num_tokens: int | None = None, capacity: int = 0) -> Self:
        self.owner.before_cache("fork")
        other = super().fork(num_tokens, capacity)
        other.owner, other.token_ids = self.owner, self.token_ids[:num_tokens]
        return other

    def keep(self, tree: TokenTree) -> None:
        super().keep(tree)
        self.token_ids += tree.chain_ids

    def copy_branches(self, tree: TokenTree) -> list[TokenKV]:
        self.owner.before_cache("copy_branches")
        return self._name(super().copy_branches(tree), tree.branch_ids)

    def copy_tokens(self, start: int) -> list[TokenKV]:
        self.owner.before_cache("copy_tokens")
        return self._name(super().copy_tokens(start), self.token_ids[start:])

    def append(self, stored: Sequence[TokenKV]) -> None:
        self.owner.before_cache("append")
        super().append(stored)
        self.token_ids += [self.owner.stored_ids[each] for each in stored]

    def cut(self, num_tokens: int) -> None:
        super().cut(num_tokens)
        del self.token_ids[num_tokens:]

    def _name(self, rows: list[TokenKV], token_ids: Sequence[int]) -> list[TokenKV]:
        self.owner.stored_ids.update(zip(rows, token_ids, strict=True))
        return rows


class WatchedModel(TorchModel):
    """A real model that a test can inspect, block and break."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model, torch.device("cpu"))
        self.caches: list[WatchedCache] = []  # in the order in which requests started that remember nothing
        self.stored_ids = WeakTensorKeyDictionary()
        self.before_forward: Callable[[], None] = lambda: None
        self.before_cache: Callable[[str], None] = lambda _: None  # before a method of a cache that needs memory

    def new_cache(self, num_tokens: int = 256) -> TorchSequenceCache:
        cache = WatchedCache(self._layout, num_tokens)
        cache.owner, cache.token_ids = self, []
        self.caches.append(cache)
        return cache

    def forward(self, parts: Sequence[SequencePart]) -> list[list[TorchRow]]:
        self.before_forward()
        return super().forward(parts)


@dataclasses.dataclass
class Clock:
    """A clock that changes only when the test sets it."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclasses.dataclass
class Bench:
    """An engine and its parts."""

    toy: ToyTokenizer
    model: WatchedModel
    engine: Engine
    clock: Clock


@cache
def load_model_once(folder: Path, dtype: str) -> torch.nn.Module:
    """Caches loaded models, because loading takes longer than most tests and no test changes the weights."""
    model: torch.nn.Module = load_transformers_model(EngineConfig(folder, dtype=dtype))[0]
    return model


@contextmanager
def open_bench(
    folder: Path, kind: str, dtype: str = "float64", prompts: PromptBuilder | None = None, **settings: Any
) -> Iterator[Bench]:
    """Builds a Bench, and closes its engine. `prompts`: another layout than that of `build_prompts`."""
    toy, clock = toy_tokenizer(kind), Clock()
    config = EngineConfig(folder, dtype=dtype, **settings)
    model = WatchedModel(load_model_once(folder, dtype))
    model.tokens = TorchTokens(toy.vocabulary, toy.trie, model.device)
    with closing(start_engine(config, model, prompts or build_prompts(toy), clock)) as engine:
        yield Bench(toy, model, engine, clock)


@dataclasses.dataclass
class ScriptedBench:
    """An engine with a model without weights, and its parts."""

    model: ScriptedModel
    engine: Engine
    clock: Clock


@contextmanager
def open_scripted_bench(
    max_tokens: int = 512, kind: str = "qwen", runs_together: bool = True, **settings: Any
) -> Iterator[ScriptedBench]:
    """Builds a ScriptedBench, and closes its engine. `max_tokens` is the model's window."""
    toy, clock = toy_tokenizer(kind), Clock()
    model = ScriptedModel(toy, max_tokens, runs_together)
    with closing(start_engine(EngineConfig(Path("model"), **settings), model, build_prompts(toy), clock)) as engine:
        yield ScriptedBench(model, engine, clock)


def with_settings(**settings: Any) -> pytest.MarkDecorator:
    """Gives the fixture `scripted` settings of `open_scripted_bench`."""
    return pytest.mark.parametrize("scripted", [settings], indirect=True)


def build_executor(max_tokens: int = 512) -> LocalExecutor:
    """The executor of a model without weights. `max_tokens` is its window."""
    toy = toy_tokenizer("qwen")
    model = ScriptedModel(toy, max_tokens, token_cost=math.inf)
    return LocalExecutor(EngineConfig(Path("model")), model, build_prompts(toy).tokenizer, Clock(), "")


def begin_job(executor: LocalExecutor, request: CompletionRequest, sink: ChunkSink | None = None) -> Job:
    """A job that arrived at 10 seconds and has begun."""
    job = Job(request, sink or CollectingSink(), submitted_at=10.0)
    room = executor.max_tokens - request.max_tokens
    job.prepare(build_prompts(toy_tokenizer("qwen")).build(request, room), executor.max_tokens)
    job.note_begin(10.0)
    executor.begin(job)
    return job


@contextmanager
def holding(bench: ScriptedBench, request: CompletionRequest) -> Iterator[CollectingSink]:
    """Submits a request, and holds the engine in the next pass as long as the context lasts."""
    is_running, may_go_on, before = threading.Event(), threading.Event(), bench.model.before_forward

    def hold(_: object) -> None:
        bench.model.before_forward = before
        is_running.set()
        assert may_go_on.wait(60)

    bench.model.before_forward = hold
    sink = submit(bench.engine, request)
    assert is_running.wait(60)
    try:
        yield sink
    finally:
        may_go_on.set()
