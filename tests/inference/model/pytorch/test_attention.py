import math
from typing import Any

import pytest
import torch

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.pytorch.attention import Plan, attach_plans, attend
from inference.model.pytorch.kv_cache import SequenceCache
from inference.model.pytorch.planes import LayerShape, Planes
from inference.model.pytorch.reach import Reach
from inference.model.pytorch.segment import Segment, build_tree_mask, find_row_positions

_NUM_HEADS, _NUM_KV_HEADS, _KEY_DIM, _VALUE_DIM = 4, 2, 3, 2


class _Layer(torch.nn.Module):
    pass


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def _build_plan(*trees: TokenTree) -> Plan:
    segments: list[Segment] = []
    for tree in trees:
        cache = SequenceCache([LayerShape(_NUM_KV_HEADS, _KEY_DIM, _VALUE_DIM)], torch.float64, torch.device("cpu"))
        segments.append(cache.build_segment(tree, segments[-1].first_row + segments[-1].num_rows if segments else 0))
    return Plan(segments)


def _attend(plan: Plan, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **named: Any) -> torch.Tensor:
    layer = _Layer()
    with attach_plans(layer).use(plan):
        out, _ = attend(layer, query, key, value, **{"attention_mask": None} | named)
    return out


def _attend_slowly(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    row: int,
    visible: list[int],
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Computes the attention of one row, head by head. Returns [num_heads, value_dim]."""
    outputs = []
    for head in range(_NUM_HEADS):
        kv_head = head * _NUM_KV_HEADS // _NUM_HEADS
        weights = []
        for other in visible:
            score = float(key[0, kv_head, other] @ query[0, head, row]) * 0.7
            weights.append(math.exp(score if softcap is None else softcap * math.tanh(score / softcap)))
        total = sum(weights) + (0 if sinks is None else math.exp(sinks[head]))
        values = value[0, kv_head, visible]
        outputs.append((torch.tensor(weights, dtype=torch.float64)[:, None] * values).sum(0) / total)
    return torch.stack(outputs)


_REACHES = {"all": Reach(), "window": Reach(window=2), "wide window": Reach(window=100), "chunk": Reach(chunk=2)}


def _sees(reach: Reach, row: int, key: int) -> bool:
    """Whether a row at one position sees the key at another before it."""
    if reach.chunk is not None:
        return row // reach.chunk == key // reach.chunk
    return reach.window is None or row - key < reach.window


@pytest.mark.parametrize("softcap", [None, 0.5])
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("kind", _REACHES)
def test_each_segment_attends_to_its_own_rows_within_reach(kind: str, has_sinks: bool, softcap: float | None) -> None:
    reach = _REACHES[kind]
    trees = [TokenTree((0, 0), (0, 0), (None, 0)), TokenTree((0,)), TokenTree((0, 0, 0))]
    num_rows = sum(tree.num_rows for tree in trees)
    query = _random(1, _NUM_HEADS, num_rows, _KEY_DIM)
    key, value = _random(1, _NUM_KV_HEADS, num_rows, _KEY_DIM), _random(1, _NUM_KV_HEADS, num_rows, _VALUE_DIM)
    sinks = _random(_NUM_HEADS) if has_sinks else None
    plan = _build_plan(*trees)

    out = _attend(plan, query, key, value, attention_mask=reach, scaling=0.7, s_aux=sinks, softcap=softcap)

    for tree, segment in zip(trees, plan.segments, strict=True):
        positions, mask = find_row_positions(tree), build_tree_mask(tree, 0)
        for row in range(tree.num_rows):
            visible = [
                segment.first_row + other
                for other in range(tree.num_rows)
                if (mask is None or mask[row, other]) and _sees(reach, positions[row], positions[other])
            ]
            expected = _attend_slowly(query, key, value, segment.first_row + row, visible, softcap, sinks)
            torch.testing.assert_close(out[0, segment.first_row + row], expected, rtol=1e-5, atol=1e-5)


def _attend_once(plan: Plan, **named: Any) -> torch.Tensor:
    keys = _random(1, _NUM_KV_HEADS, plan.segments[0].num_rows, _KEY_DIM)
    return _attend(plan, keys, keys, keys[..., :_VALUE_DIM], **named)


def test_the_window_of_the_mask_counts_and_not_that_of_the_layer() -> None:
    tree = TokenTree((0, 0, 0))

    by_mask = _attend_once(_build_plan(tree), attention_mask=Reach(), sliding_window=1)
    by_layer = _attend_once(_build_plan(tree), sliding_window=1)

    assert torch.equal(by_mask, _attend_once(_build_plan(tree)))
    assert not torch.equal(by_layer, by_mask)


def test_each_call_of_a_pass_has_keys_and_values_of_its_own() -> None:
    plan = _build_plan(TokenTree((0,)))
    store = plan.segments[0].store
    assert isinstance(store, SequenceCache)
    store._planes = Planes([LayerShape(_NUM_KV_HEADS, _KEY_DIM, _VALUE_DIM)] * 2, torch.float64, torch.device("cpu"), 1)
    layer, (first, second) = _Layer(), _random(2, 1, _NUM_KV_HEADS, 1, _KEY_DIM)
    with attach_plans(layer).use(plan):
        for states in (first, second):
            attend(layer, states, states, states[..., :_VALUE_DIM], None)

    assert [torch.equal(store._planes.find(index)[0], [first[0], second[0]][index]) for index in (0, 1)] == [True, True]
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
        _attend_once(_build_plan(TokenTree((0,))), **{name: torch.ones(1)})


def test_a_mask_that_does_more_than_to_limit_the_reach_is_refused() -> None:
    with pytest.raises(ModelError, match="_Layer is odd"):
        _attend_once(_build_plan(TokenTree((0,))), attention_mask=Reach(fault="is odd"))


def test_a_layer_that_sees_later_tokens_is_refused() -> None:
    with pytest.raises(ModelError, match="_Layer lets tokens see those after them"):
        _attend_once(_build_plan(TokenTree((0,))), is_causal=False)


def test_a_layer_that_is_called_outside_a_forward_pass_is_refused() -> None:
    states = _random(1, _NUM_KV_HEADS, 1, _KEY_DIM)

    with pytest.raises(ModelError, match="_Layer is called outside a forward pass"):
        attend(_Layer(), states, states, states, None)


def test_two_models_have_plans_of_their_own() -> None:
    one, other = _Layer(), _Layer()
    holders = attach_plans(one), attach_plans(other)
    states = _random(1, _NUM_KV_HEADS, 1, _KEY_DIM)

    with holders[0].use(_build_plan(TokenTree((0,)))), pytest.raises(ModelError, match="outside a forward pass"):
        attend(other, states, states, states[..., :_VALUE_DIM], None)
