"""The engine with attention of all sequences together, as on a GPU: the answers are those of one after the other."""

from contextlib import closing
from pathlib import Path

import pytest
import torch

from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.model.pytorch.attention.pooled_attention import AttentionKernel
from inference.model.pytorch.model import TorchModel
from inference.model.pytorch.runner import Runner
from inference.protocol.completion import CompletionRequest, Healing
from tests.inference.conftest import MakeModel
from tests.support.engine_bench import UNBOUNDED, load_model_once
from tests.support.kernels import interpreted
from tests.support.plain_kernel import PlainKernel
from tests.support.sinks import submit
from tests.support.toys import build_prompts, toy_tokenizer

_TEXTS = ["return Nod", "x = ", "def read(self, pa", "for i in ran", "    if not sel", "\n"]

_HEALING = [Healing.EXACT, Healing.EXACT, Healing.GREEDY, Healing.SINGLE, Healing.NONE, Healing.EXACT]
_NUM_CANDIDATES = [1, 3, 1, 2, 1, 1]


def _complete_all(folder: Path, kernel: AttentionKernel | None) -> list[str]:
    """The answers to requests of all kinds that run at the same time, twice, so that later ones find sequences."""
    toy = toy_tokenizer("qwen")
    runner = Runner(load_model_once(folder, "float32"), torch.device("cpu"), kernel)
    model = TorchModel(runner, toy.vocabulary, toy.trie)
    requests = [
        CompletionRequest(text, max_tokens=6, extent=UNBOUNDED, healing=healing, num_candidates=count, seed=5)
        for text, healing, count in zip(_TEXTS, _HEALING, _NUM_CANDIDATES, strict=True)
    ]
    answers = []
    with closing(Engine(EngineConfig(folder, warm=False), model, build_prompts(toy))) as engine:
        for _ in range(2):
            sinks = [submit(engine, request) for request in requests]
            answers += [text for sink in sinks for text in sink.wait().texts]
    return answers


def test_a_kernel_that_sees_the_packed_pass_only_gives_the_same_answers(make_model: MakeModel) -> None:
    folder = make_model("qwen")

    assert _complete_all(folder, PlainKernel()) == _complete_all(folder, None)


@interpreted
@pytest.mark.parametrize("num_processors", [1, 200])
def test_the_kernel_for_gpus_gives_the_same_answers(make_model: MakeModel, num_processors: int) -> None:
    from inference.model.pytorch.kernels.tree_attention import TreeAttentionKernel

    folder = make_model("qwen")

    assert _complete_all(folder, TreeAttentionKernel(num_processors)) == _complete_all(folder, None)
