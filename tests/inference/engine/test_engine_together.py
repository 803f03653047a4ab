"""The engine with attention of all sequences together, as on a GPU: the answers are those of one after the other."""

import gc
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import torch

from inference.config import EngineConfig
from inference.engine.assembly import start_engine
from inference.model.pytorch.attention import AttentionKernel
from inference.model.pytorch.runner import Runner, TorchModel
from inference.model.pytorch.sampler import TorchSampler, build_sampler
from inference.model.pytorch.scoring import Scorer, TokenRanks
from inference.protocol.completion import CompletionRequest, Healing
from tests.inference.conftest import MakeModel
from tests.support.attention_oracle import attend_plainly
from tests.support.engine_bench import UNBOUNDED, load_model_once, open_bench
from tests.support.kernels import interpreted
from tests.support.pools import count_free
from tests.support.samplers import NumpyScorer
from tests.support.sinks import submit
from tests.support.toys import build_prompts, toy_tokenizer

BuildScorer = Callable[[TokenRanks], Scorer]

_REQUESTS = [
    CompletionRequest(text, "", 6, healing, num_candidates=num_candidates, extent=UNBOUNDED, explain=True)
    for text, healing, num_candidates in (
        ("return Nod", Healing.EXACT, 1),
        ("x = ", Healing.EXACT, 3),
        ("def read(self, pa", Healing.GREEDY, 1),
        ("for i in ran", Healing.SINGLE, 2),
        ("    if not sel", Healing.NONE, 1),
        ("\n", Healing.EXACT, 1),
    )
]


def _complete_all(folder: Path, kernel: AttentionKernel | None, build_scorer: BuildScorer | None = None) -> list[str]:
    """The answers to requests of all kinds that run at the same time, twice, so that later ones find sequences."""
    toy, cpu = toy_tokenizer("qwen"), torch.device("cpu")
    runner = Runner(load_model_once(folder, "float32"), cpu, kernel)
    sampler = build_sampler(cpu, runner.dtype, toy.vocabulary, toy.trie)
    if build_scorer is not None:
        ranks = TokenRanks(toy.vocabulary, toy.trie, cpu)
        sampler = TorchSampler(toy.vocabulary, toy.trie, ranks, build_scorer(ranks))
    answers = []
    model = TorchModel(runner, sampler)
    with closing(start_engine(EngineConfig(folder), model, build_prompts(toy))) as engine:
        for _ in range(2):
            sinks = [submit(engine, request) for request in _REQUESTS]
            answers += [text for sink in sinks for text in sink.wait().texts]
    return answers


def test_what_a_gpu_does_in_plain_torch_gives_the_same_answers(make_model: MakeModel) -> None:
    folder = make_model("qwen")

    assert _complete_all(folder, attend_plainly, NumpyScorer) == _complete_all(folder, None)


def test_all_slots_are_free_when_the_engine_and_its_answers_are_gone(make_model: MakeModel) -> None:
    with open_bench(make_model("qwen"), "qwen", "float32", memory_mib=1) as bench:
        runner = bench.runner
        for number in range(60):
            prefix = f"{_REQUESTS[number % len(_REQUESTS)].prefix}{'x' * number}"
            request = CompletionRequest(prefix, max_tokens=3, num_candidates=1 + number % 3, document=str(number % 7))
            sink = submit(bench.engine, request)
            if number % 5 == 0:
                sink.cancelled.set()
            sink.wait_for_end()
        capacity = runner._pool.capacity
    del bench
    runner.caches.clear()
    gc.collect()
    assert count_free(runner._pool) == capacity


@interpreted
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")  # of the interpreter
def test_the_kernels_for_gpus_give_the_same_answers(make_model: MakeModel) -> None:
    from inference.model.pytorch.attention_kernel import attend_together
    from inference.model.pytorch.choice_kernel import score_batch

    folder = make_model("qwen")

    assert _complete_all(
        folder, partial(attend_together, 200), lambda ranks: partial(score_batch, ranks)
    ) == _complete_all(folder, None)
