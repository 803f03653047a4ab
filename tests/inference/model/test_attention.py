from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.attention import Segment, attend, build_tree_mask, find_row_positions
from inference.model.kv_cache import CacheShape, SequenceCache
from tests.support.toys import token_trees

_NUM_HEADS, _NUM_KV_HEADS, _HEAD_DIM = 4, 2, 3


class _Layer(torch.nn.Module):
    layer_idx = 0


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def _build_cache() -> SequenceCache:
    return SequenceCache(CacheShape(1, _NUM_KV_HEADS, _HEAD_DIM), torch.float64, torch.device("cpu"))


def _attend_slowly(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, row: int, visible: list[int], scaling: float
) -> torch.Tensor:
    """Computes the attention of one row, head by head. Returns [num_heads, head_dim]."""
    outputs = []
    for head in range(_NUM_HEADS):
        kv_head = head * _NUM_KV_HEADS // _NUM_HEADS
        scores = key[0, kv_head, visible] @ query[0, head, row] * scaling
        outputs.append(scores.softmax(0) @ value[0, kv_head, visible])
    return torch.stack(outputs)


@given(tree=token_trees(), num_kept=st.integers(0, 3))
def test_a_row_attends_to_kept_tokens_the_chain_before_it_and_its_ancestors(tree: TokenTree, num_kept: int) -> None:
    mask = build_tree_mask(tree, num_kept)

    chain = [num_kept + row for row in range(len(tree.chain_ids))]
    expected = [{*range(num_kept), *chain[: row + 1]} for row in range(len(chain))]
    for branch in range(len(tree.branch_ids)):
        ancestors = {num_kept + len(chain) + at for at in tree.find_path(branch)}
        expected.append({*range(num_kept), *chain, *ancestors})
    seen = [set(range(num_kept + 1))] if mask is None else [set(row.nonzero()[:, 0].tolist()) for row in mask]
    assert seen == expected


@given(tree=token_trees())
def test_a_rows_position_is_the_number_of_tokens_before_it_on_its_path(tree: TokenTree) -> None:
    num_chain = len(tree.chain_ids)
    on_branches = [num_chain + len(tree.find_path(branch)) - 1 for branch in range(len(tree.branch_ids))]

    assert find_row_positions(tree) == [*range(num_chain), *on_branches]


@pytest.mark.parametrize("window", [None, 2, 100])
def test_each_segment_attends_to_its_own_rows_within_the_window(window: int | None) -> None:
    trees = [TokenTree((0, 0), (0, 0), (None, 0)), TokenTree((0,)), TokenTree((0, 0, 0))]
    num_rows = sum(tree.num_rows for tree in trees)
    query, key, value = (_random(1, heads, num_rows, _HEAD_DIM) for heads in (_NUM_HEADS, _NUM_KV_HEADS, _NUM_KV_HEADS))
    plan: list[Segment] = []
    for tree in trees:
        plan.append(_build_cache().build_segment(tree, plan[-1].first_row + plan[-1].num_rows if plan else 0))

    out, _ = attend(_Layer(), query, key, value, None, scaling=0.7, plan=plan, sliding_window=window)

    for tree, segment in zip(trees, plan, strict=True):
        positions, mask = find_row_positions(tree), build_tree_mask(tree, 0)
        for row in range(tree.num_rows):
            visible = [
                segment.first_row + other
                for other in range(tree.num_rows)
                if (mask is None or mask[row, other]) and (window is None or positions[row] - positions[other] < window)
            ]
            expected = _attend_slowly(query, key, value, segment.first_row + row, visible, 0.7)
            torch.testing.assert_close(out[0, segment.first_row + row], expected)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("attention_mask", "a mask of the model's own"),
        ("softcap", "a soft cap"),
        ("s_aux", "attention sinks"),
        ("position_bias", "positions added"),
        ("indices", "attention to selected tokens"),
    ],
)
def test_an_argument_that_changes_the_result_is_refused_by_its_meaning(name: str, meaning: str) -> None:
    states = _random(1, _NUM_KV_HEADS, 1, _HEAD_DIM)
    arguments: dict[str, Any] = {"attention_mask": None, name: torch.ones(1)}

    with pytest.raises(ModelError, match=f"_Layer uses {meaning}"):
        attend(_Layer(), states, states, states, plan=[_build_cache().build_segment(TokenTree((0,)), 0)], **arguments)


def test_a_layer_that_is_called_without_the_plan_is_refused() -> None:
    states = _random(1, _NUM_KV_HEADS, 1, _HEAD_DIM)

    with pytest.raises(ModelError, match="_Layer does not get the keyword arguments"):
        attend(_Layer(), states, states, states, None)
