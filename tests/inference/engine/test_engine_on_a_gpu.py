"""The engine with the choice of a GPU: the answers are those of NumPy on the CPU."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import torch

from inference.config import EngineConfig
from inference.engine.assembly import start_engine
from inference.model.pytorch.runner import Runner, TorchModel
from inference.model.pytorch.sampler import HostSampler, Sampler, TorchSampler
from inference.model.pytorch.scoring import Scorer, TokenRanks
from inference.protocol.completion import CompletionRequest, Healing
from tests.inference.conftest import MakeModel
from tests.support.engine_bench import UNBOUNDED, load_model_once
from tests.support.kernels import interpreted
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


def _complete_all(folder: Path, build_scorer: BuildScorer | None = None) -> list[str]:
    """The answers to requests of all kinds that run at the same time, twice, so that later ones find sequences."""
    toy, cpu = toy_tokenizer("qwen"), torch.device("cpu")
    sampler: Sampler = HostSampler(toy.vocabulary, toy.trie)
    if build_scorer is not None:
        ranks = TokenRanks(toy.vocabulary, toy.trie, cpu)
        sampler = TorchSampler(toy.vocabulary, toy.trie, ranks, build_scorer(ranks))
    answers = []
    model = TorchModel(Runner(load_model_once(folder, "float32"), cpu), sampler)
    with closing(start_engine(EngineConfig(folder), model, build_prompts(toy))) as engine:
        for _ in range(2):
            sinks = [submit(engine, request) for request in _REQUESTS]
            answers += [text for sink in sinks for text in sink.wait().texts]
    return answers


def test_the_sampler_for_gpus_gives_the_same_answers(make_model: MakeModel) -> None:
    folder = make_model("qwen")

    assert _complete_all(folder, NumpyScorer) == _complete_all(folder)


@interpreted
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")  # of the interpreter
def test_the_kernels_for_gpus_give_the_same_answers(make_model: MakeModel) -> None:
    from inference.model.pytorch.choice_kernel import score_batch

    folder = make_model("qwen")

    assert _complete_all(folder, lambda ranks: partial(score_batch, ranks)) == _complete_all(folder)
