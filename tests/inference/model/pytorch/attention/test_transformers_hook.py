import pytest
import torch

from inference.errors import ModelError
from inference.model.pytorch.pool import LayerShape
from inference.model.pytorch.transformers_hook import Plan, Reach, ScoreRule, attach_plans, attend


class _Layer(torch.nn.Module):
    pass


class _Recorder:
    """Records what a layer asks for, and answers with its queries."""

    def __init__(self) -> None:
        self.layers: list[int] = []
        self.rules: list[ScoreRule] = []

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,  # noqa: ARG002  # the interface
        value: torch.Tensor,  # noqa: ARG002  # the interface
        rule: ScoreRule,
    ) -> torch.Tensor:
        self.layers.append(layer)
        self.rules.append(rule)
        return query.transpose(0, 1)


_STATES = torch.arange(2.0 * 3 * 4).reshape(1, 2, 3, 4)  # [1, num_heads, num_rows, dim]


def _attend(layer: torch.nn.Module, mask: object = None, **named: object) -> tuple[_Recorder, Plan, torch.Tensor]:
    plan = Plan(_Recorder())
    with attach_plans(layer).use(plan):
        out, _ = attend(layer, _STATES, _STATES, _STATES[..., :1], mask, **named)  # type: ignore[arg-type]
    assert isinstance(plan.attention, _Recorder)
    return plan.attention, plan, out


def test_the_arguments_of_a_layer_reach_the_attention_of_the_pass() -> None:
    sinks = torch.ones(2)

    asked, plan, out = _attend(_Layer(), Reach(window=3), scaling=0.7, softcap=2.0, s_aux=sinks)

    assert asked.rules[0].reach == Reach(window=3)
    assert (asked.rules[0].scale, asked.rules[0].softcap) == (0.7, 2.0)
    assert asked.rules[0].sinks is sinks
    assert plan.calls[0].shape == LayerShape(2, 4, 1)
    assert torch.equal(out, _STATES.transpose(1, 2))


def test_scores_are_scaled_by_the_size_of_keys_unless_the_layer_says_otherwise() -> None:
    assert _attend(_Layer())[0].rules[0].scale == 0.5


def test_the_window_of_the_mask_counts_and_not_that_of_the_layer() -> None:
    assert _attend(_Layer(), Reach(), sliding_window=1)[0].rules[0].reach == Reach()
    assert _attend(_Layer(), sliding_window=1)[0].rules[0].reach == Reach(window=1)


def test_each_call_of_a_pass_has_a_layer_of_its_own() -> None:
    layer, plan = _Layer(), Plan(_Recorder())
    with attach_plans(layer).use(plan):
        for _ in range(2):
            attend(layer, _STATES, _STATES, _STATES, None)

    assert isinstance(plan.attention, _Recorder)
    assert plan.attention.layers == [0, 1]
    assert [call.module for call in plan.calls] == [layer, layer]


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
    with pytest.raises(ModelError, match=f"_Layer uses {meaning}"):
        _attend(_Layer(), **({"mask": torch.ones(1)} if name == "attention_mask" else {name: torch.ones(1)}))


def test_a_mask_that_does_more_than_to_limit_the_reach_is_refused() -> None:
    with pytest.raises(ModelError, match="_Layer is odd"):
        _attend(_Layer(), Reach(fault="is odd"))


def test_a_layer_that_sees_later_tokens_is_refused() -> None:
    with pytest.raises(ModelError, match="_Layer lets tokens see those after them"):
        _attend(_Layer(), is_causal=False)


def test_a_layer_that_is_called_outside_a_forward_pass_is_refused() -> None:
    with pytest.raises(ModelError, match="_Layer is called outside a forward pass"):
        attend(_Layer(), _STATES, _STATES, _STATES, None)


def test_two_models_have_plans_of_their_own() -> None:
    one, other = _Layer(), _Layer()
    holders = attach_plans(one), attach_plans(other)

    with holders[0].use(Plan(_Recorder())), pytest.raises(ModelError, match="outside a forward pass"):
        attend(other, _STATES, _STATES, _STATES, None)
