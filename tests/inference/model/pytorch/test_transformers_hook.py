from typing import Any

import pytest
import torch

from inference.errors import ModelError
from inference.model.pytorch.transformers_hook import (
    Reach,
    ScoreRule,
    attach_running_pass,
    attend,
    build_reach,
)


class _MaskConfig:
    sliding_window = 4
    attention_chunk_size = 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"allow_is_bidirectional_skip": True}, "lets tokens see those after them"),
        ({"use_vmap": True}, "joins the mask of earlier tokens with another one"),
        ({"local_size": 4}, "cannot be told apart"),
    ],
)
def test_a_mask_that_does_more_has_a_fault(arguments: dict[str, Any], reason: str) -> None:
    assert reason in (build_reach(config=_MaskConfig(), **arguments).fault or "")


def test_code_that_computes_with_a_mask_is_refused() -> None:
    with pytest.raises(ModelError, match=r"computes with the attention's mask \(.dtype\)"):
        Reach().dtype  # noqa: B018  # as such code does
    with pytest.raises(ModelError, match="takes a part of the attention's mask"):
        Reach()[..., :1]


class _Layer(torch.nn.Module):
    pass


_STATES = torch.arange(2.0 * 3 * 4).reshape(1, 2, 3, 4)  # [1, num_heads, num_rows, dim]


@pytest.mark.parametrize(
    ("mask", "arguments", "reason"),
    [
        (torch.ones(1), {}, "uses a mask of the model's own"),
        (None, {"position_bias": torch.ones(1)}, "uses positions added"),
        (None, {"indices": torch.ones(1)}, "uses attention to selected tokens"),
        (None, {"tilt": torch.ones(1)}, "uses an argument of attention that is not known here"),
        (None, {"is_causal": False}, "lets tokens see those after them"),
        (Reach(fault="is odd"), {}, "is odd"),
    ],
    ids=str,
)
def test_what_changes_the_result_and_is_not_supported_is_refused_by_its_meaning(
    mask: Any, arguments: dict[str, Any], reason: str
) -> None:
    layer = _Layer()
    running = attach_running_pass(layer)
    with running.use(lambda *_arguments: _STATES), pytest.raises(ModelError, match=f"_Layer {reason}"):
        attend(layer, _STATES, _STATES, _STATES, mask, **arguments)


def test_the_window_of_the_mask_counts_and_that_of_the_layer_without_one() -> None:
    layer, rules = _Layer(), list[ScoreRule]()
    running = attach_running_pass(layer)
    with running.use(lambda *arguments: rules.append(arguments[-1]) or _STATES):  # type: ignore[func-returns-value]
        for mask in (Reach(), None):
            attend(layer, _STATES, _STATES, _STATES, mask, sliding_window=1)
    assert [(rule.reach, rule.scale) for rule in rules] == [(Reach(), 0.5), (Reach(window=1), 0.5)]


def test_two_models_have_passes_of_their_own() -> None:
    one, other = _Layer(), _Layer()
    running, _ = attach_running_pass(one), attach_running_pass(other)
    with running.use(lambda *_arguments: _STATES), pytest.raises(ModelError, match="outside a forward pass"):
        attend(other, _STATES, _STATES, _STATES, None)
