"""The runner on a device that is not the CPU: no operation mixes tensors of both."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from inference.healing.covering import Crossing, Rule
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequenceInput
from inference.model.pytorch.loader import check_torch_model
from inference.model.pytorch.model import TorchModel
from inference.model.sampler import SampleRequest, Sampling, choose
from tests.support.other_device import DeviceTensor, move_model, register_device
from tests.support.runners import build_torch
from tests.support.tiny_families import KV, build_config, build_model

_NUM_LAYERS = 3


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def _build(family: str) -> tuple[TorchModel, TorchModel]:
    """The same model on the device and on the CPU."""
    config = build_config(family, {**KV, "num_hidden_layers": _NUM_LAYERS})
    device, model = register_device(), build_model(config)
    move_model(model)
    return build_torch(model, device), build_torch(build_model(config))


@pytest.mark.parametrize("family", ["qwen2", "gemma2", "gpt_neox"])
def test_a_model_on_the_device_gives_the_logits_of_transformers_there(family: str) -> None:
    check_torch_model(_build(family)[0])


@pytest.mark.parametrize("sampling", [Sampling(0.0, 1.0), Sampling(1.0, 1.0), Sampling(2.0, 0.6)], ids=str)
def test_choices_on_the_device_are_those_on_the_cpu(sampling: Sampling) -> None:
    tree = TokenTree((4, 5), (6, 7, 8), (None, 0, None))
    crossings = tuple(Crossing(node, b"\0", rule) for node, rule in zip((None, 0, 1), Rule, strict=True))
    for num_choices in (1, 3):
        chosen = []
        for model in _build("qwen2"):
            [rows] = model.forward([SequenceInput(model.new_cache(), tree)])
            sources = tuple(np.random.default_rng(seed) for seed in range(num_choices))
            chosen.append(choose(SampleRequest(tree, crossings, rows, sampling, sources)).choices)
        assert len(chosen[0]) == num_choices
        assert chosen[0] == chosen[1]


def test_tensors_of_both_devices_in_one_operation_fail() -> None:
    register_device()
    with pytest.raises(RuntimeError, match="tensors on the device and on the CPU"):
        DeviceTensor(torch.ones(2)) + torch.ones(2)
