"""The runner on a device that is not the CPU: no operation mixes tensors of both."""

from collections.abc import Iterator

import pytest
import torch

from inference.model.pytorch.forward_check import check_forward_pass
from inference.model.pytorch.runner import Runner
from tests.support.other_device import DeviceTensor, move_model, register_device
from tests.support.tiny_families import KV, build_config, build_model

_NUM_LAYERS = 3


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def _build(family: str) -> Runner:
    device = register_device()
    model = build_model(build_config(family, {**KV, "num_hidden_layers": _NUM_LAYERS}))
    move_model(model)
    return Runner(model, device)


@pytest.mark.parametrize("family", ["qwen2", "gemma2", "gpt_neox"])
def test_a_model_on_the_device_gives_the_logits_of_transformers_there(family: str) -> None:
    runner = _build(family)

    check_forward_pass(runner._model, runner)


def test_tensors_of_both_devices_in_one_operation_fail() -> None:
    register_device()
    with pytest.raises(RuntimeError, match="tensors on the device and on the CPU"):
        DeviceTensor(torch.ones(2)) + torch.ones(2)
