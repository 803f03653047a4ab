"""The runner on a device that is not the CPU: nothing is on the wrong one, and work does not grow with sequences."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch

from inference.healing.token_tree import TokenTree
from inference.model.language_model import Part
from inference.model.pytorch.forward_check import check_forward_pass
from inference.model.pytorch.runner import Runner
from tests.support.attention_oracle import attend_plainly
from tests.support.counting_device import Counts, DeviceTensor, counting, move_model, register_device, run_kernel
from tests.support.tiny_families import KV, build_config, build_model

_NUM_LAYERS = 3
_TREE = TokenTree((1, 2, 3), (4, 5, 6), (None, 0, None))
_attend_on_device = partial(run_kernel, "attention", attend_plainly)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def _build(kernel: bool, family: str = "qwen2") -> Runner:
    device = register_device()
    model = build_model(build_config(family, {**KV, "num_hidden_layers": _NUM_LAYERS}))
    move_model(model)
    return Runner(model, device, _attend_on_device if kernel else None)


@pytest.mark.parametrize("kernel", [False, True], ids=["by segment", "together"])
@pytest.mark.parametrize("family", ["qwen2", "gemma2", "gpt_neox"])
def test_a_model_on_the_device_gives_the_logits_of_transformers_there(family: str, kernel: bool) -> None:
    runner = _build(kernel, family)

    check_forward_pass(runner._model, runner)


def _forward(runner: Runner, num_sequences: int, tree: TokenTree) -> Counts:
    parts = [Part(runner.new_cache(), tree) for _ in range(num_sequences)]
    with counting() as counts:
        runner.forward(parts)
        for part in parts:
            part.cache.copy_branches(tree)
            part.cache.keep(tree)
    return counts


def test_the_launches_of_a_pass_do_not_grow_with_the_number_of_sequences() -> None:
    runner = _build(kernel=True)
    one, many = _forward(runner, 1, _TREE), _forward(runner, 40, _TREE)
    by_segment = _build(kernel=False)

    assert one.num_launches == many.num_launches
    assert one.operations["attention"] == 2 * _NUM_LAYERS
    assert _forward(by_segment, 40, _TREE).num_launches > 3 * many.num_launches  # so they are counted


def test_a_pass_copies_twice_to_the_device_whatever_it_forwards() -> None:
    runner = _build(kernel=True)

    assert _forward(runner, 1, TokenTree((1,))).num_copies_in == 2
    assert _forward(runner, 40, _TREE).num_copies_in == 2


def test_a_pass_waits_for_the_device_only_where_transformers_does() -> None:
    """It asks once whether the positions are those of several sequences; not if it is compiled."""
    assert _forward(_build(kernel=True), 40, _TREE).num_waits == 1


def test_to_keep_and_to_copy_tokens_costs_the_device_nothing() -> None:
    runner = _build(kernel=True)
    cache = runner.new_cache()
    runner.forward([Part(cache, _TREE)])

    with counting() as counts:
        branches = cache.copy_branches(_TREE)
        cache.keep(_TREE)
        other = cache.fork()
        other.cut(2)
        other.append(branches[:1])

    assert (counts.num_launches, counts.num_copies_in, counts.num_waits) == (0, 0, 0)


def test_tensors_of_both_devices_in_one_operation_fail() -> None:
    register_device()
    with pytest.raises(RuntimeError, match="tensors on the device and on the CPU"):
        DeviceTensor(torch.ones(2)) + torch.ones(2)
