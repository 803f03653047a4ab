from typing import Any

import pytest
import torch

from inference.errors import ModelError
from inference.model.pytorch.pool import LayerShape
from inference.model.pytorch.transformers_hook import (
    AttentionCall,
    Reach,
    ScoreRule,
    attach_running_pass,
    attend,
    build_reach,
)


class _MaskConfig:
    sliding_window = 5
    attention_chunk_size = 4


def test_the_reach_of_a_mask_is_its_window_or_its_chunk() -> None:
    assert build_reach(config=_MaskConfig()) == Reach()
    assert build_reach(config=_MaskConfig(), local_size=5) == Reach(window=5)
    assert build_reach(config=_MaskConfig(), local_size=4) == Reach(chunk=4)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"allow_is_bidirectional_skip": True}, "lets tokens see those after them"),
        ({"use_vmap": True}, "joins the mask of earlier tokens with another one"),
        ({"local_size": 4}, "cannot be told apart"),
    ],
)
def test_a_mask_that_does_more_has_a_fault(arguments: dict[str, Any], reason: str) -> None:
    config = _MaskConfig()
    config.sliding_window = 4
    assert reason in (build_reach(config=config, **arguments).fault or "")


def test_code_that_computes_with_a_mask_is_refused() -> None:
    with pytest.raises(ModelError, match=r"computes with the attention's mask \(.dtype\)"):
        Reach().dtype  # noqa: B018  # as such code does
    with pytest.raises(ModelError, match="takes a part of the attention's mask"):
        Reach()[..., :1]


class _Layer(torch.nn.Module):
    pass


_STATES = torch.arange(2.0 * 3 * 4).reshape(1, 2, 3, 4)  # [1, num_heads, num_rows, dim]


def _attend(
    layer: torch.nn.Module, *masks: object, **named: object
) -> tuple[list[tuple[int, ScoreRule]], list[AttentionCall], torch.Tensor]:
    """What a pass is asked for when the layer calls for each mask: layers and rules; the calls; the last result."""
    asked: list[tuple[int, ScoreRule]] = []

    def answer(
        number: int, query: torch.Tensor, _key: torch.Tensor, _value: torch.Tensor, rule: ScoreRule
    ) -> torch.Tensor:
        asked.append((number, rule))
        return query.transpose(0, 1)

    running = attach_running_pass(layer)
    with running.use(answer):
        for mask in masks:
            out, _ = attend(layer, _STATES, _STATES, _STATES[..., :1], mask, **named)  # type: ignore[arg-type]
    return asked, running.calls, out


def test_the_arguments_of_a_layer_reach_the_attention_of_the_pass() -> None:
    sinks = torch.ones(2)
    layer = _Layer()
    asked, calls, out = _attend(layer, Reach(window=3), Reach(), scaling=0.7, softcap=2.0, s_aux=sinks)
    assert [number for number, _ in asked] == [0, 1]
    assert [rule.reach for _, rule in asked] == [Reach(window=3), Reach()]
    assert (asked[0][1].scale, asked[0][1].softcap) == (0.7, 2.0)
    assert asked[0][1].sinks is sinks
    assert [(call.module, call.shape) for call in calls] == [(layer, LayerShape(2, 4, 1))] * 2
    assert torch.equal(out, _STATES.transpose(1, 2))


def test_scores_are_scaled_by_the_size_of_keys_unless_the_layer_says_otherwise() -> None:
    assert _attend(_Layer(), None)[0][0][1].scale == 0.5


def test_the_window_of_the_mask_counts_and_not_that_of_the_layer() -> None:
    asked, _, _ = _attend(_Layer(), Reach(), None, sliding_window=1)
    assert [rule.reach for _, rule in asked] == [Reach(), Reach(window=1)]


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("attention_mask", "a mask of the model's own"),
        ("position_bias", "positions added"),
        ("indices", "attention to selected tokens"),
        ("tilt", "an argument of attention that is not known here"),
    ],
)
def test_an_argument_that_changes_the_result_is_refused_by_its_meaning(name: str, meaning: str) -> None:
    is_mask = name == "attention_mask"
    with pytest.raises(ModelError, match=f"_Layer uses {meaning}"):
        _attend(_Layer(), torch.ones(1) if is_mask else None, **({} if is_mask else {name: torch.ones(1)}))


def test_a_mask_that_does_more_than_to_limit_the_reach_is_refused() -> None:
    with pytest.raises(ModelError, match="_Layer is odd"):
        _attend(_Layer(), Reach(fault="is odd"))


def test_a_layer_that_sees_later_tokens_is_refused() -> None:
    with pytest.raises(ModelError, match="_Layer lets tokens see those after them"):
        _attend(_Layer(), None, is_causal=False)


def test_a_layer_that_is_called_outside_a_forward_pass_is_refused() -> None:
    with pytest.raises(ModelError, match="_Layer is called outside a forward pass"):
        attend(_Layer(), _STATES, _STATES, _STATES, None)


def test_two_models_have_passes_of_their_own() -> None:
    one, other = _Layer(), _Layer()
    running, _ = attach_running_pass(one), attach_running_pass(other)
    with running.use(lambda *_arguments: _STATES), pytest.raises(ModelError, match="outside a forward pass"):
        attend(other, _STATES, _STATES, _STATES, None)
