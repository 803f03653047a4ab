import math
from collections.abc import Sequence
from random import Random

import pytest
import torch

from inference.healing.token_tree import TokenTree
from inference.model.pytorch.attention import SegmentAttention
from inference.model.pytorch.kv_cache import Segment, TorchSequenceCache, build_lone_segment
from inference.model.pytorch.transformers_hook import Reach, ScoreRule

_CPU = torch.device("cpu")
_SCALE = 0.7
_NUM_HEADS, _NUM_KV_HEADS, _KEY_DIM, _VALUE_DIM = 4, 2, 3, 2
_REACHES = {
    "all": Reach(),
    "window of 2": Reach(window=2),
    "window of 7": Reach(window=7),
    "wide window": Reach(window=1000),
    "chunk of 3": Reach(chunk=3),
}


def _build_cache(random: Random, num_tokens: int) -> TorchSequenceCache:
    """A cache with random keys and values."""
    planes = [torch.randn(_NUM_KV_HEADS, num_tokens, dim) for dim in (_KEY_DIM, _VALUE_DIM)]
    return TorchSequenceCache(planes, num_tokens, num_tokens + random.randint(0, 9))


def _draw_tree(random: Random, num_stored: int) -> TokenTree:
    """The stored branches are a path."""
    chain = (0,) * (0 if num_stored else random.choice([1, 1, 2, 9, 21]))
    parents: list[int | None] = [index - 1 if index else None for index in range(num_stored)]
    for index in range(num_stored, num_stored + random.choice([0, 1, 4, 70] if chain else [1, 4])):
        parents.append(random.choice([None, *range(index)]))
    return TokenTree(chain, (0,) * len(parents), tuple(parents))


def _build_segment(random: Random) -> tuple[Segment, TokenTree, int]:
    """A sequence's part in a pass, its tree, and how many branches of it are stored."""
    cache = _build_cache(random, random.randint(0, 40))
    num_stored = random.choice([0, 0, 1, 3]) if cache.num_tokens else 0
    tree = _draw_tree(random, num_stored)
    cache.reserve(tree.num_rows)
    return cache.build_segment(tree, _build_cache(random, num_stored).copy_tokens(0)), tree, num_stored


def _attend_slowly(
    segment: Segment,
    tree: TokenTree,
    num_stored: int,
    states: Sequence[torch.Tensor],  # the queries, keys and values of the new rows
    rule: ScoreRule,
) -> list[torch.Tensor]:
    """The attention of each row and head of a segment, in float64."""
    assert segment.cache is not None
    num_kept, num_before = segment.cache.num_tokens, segment.cache.num_tokens + num_stored
    query, key, value = (each.double() for each in states)
    planes = [plane[:, :num_before].double() for plane in segment.cache._planes]
    keys, values = (torch.cat(pair, dim=1) for pair in zip(planes, (key, value), strict=True))
    positions = [*range(num_kept), *tree.find_positions(num_kept)]
    outputs = []
    for row, sees in enumerate(tree.build_mask()[num_stored:].tolist()):
        own = positions[num_before + row]
        seen = [
            place
            for place, (position, is_seen) in enumerate(zip(positions, [True] * num_kept + sees, strict=True))
            if is_seen and _is_near(own, position, rule.reach)
        ]
        for head in range(_NUM_HEADS):
            own_keys, own_values = (each[head * _NUM_KV_HEADS // _NUM_HEADS, seen] for each in (keys, values))
            scores = (own_keys @ query[head, row] * rule.scale).tolist()
            if rule.softcap is not None:
                scores = [rule.softcap * math.tanh(score / rule.softcap) for score in scores]
            weights = torch.tensor([math.exp(score) for score in scores], dtype=torch.float64)
            total = float(weights.sum()) + (0 if rule.sinks is None else math.exp(rule.sinks[head]))
            outputs.append((weights[:, None] * own_values).sum(0) / total)
    return outputs


def _is_near(own: int, other: int, reach: Reach) -> bool:
    if reach.chunk is not None:
        return own // reach.chunk == other // reach.chunk
    return reach.window is None or own - other < reach.window


@pytest.mark.parametrize("softcap", [None, 0.5])
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("kind", _REACHES)
def test_each_row_attends_to_the_keys_it_may_see(kind: str, has_sinks: bool, softcap: float | None) -> None:
    for seed in range(6):
        random = Random(seed)
        torch.manual_seed(seed)
        cases = [_build_segment(random) for _ in range(3)]
        sizes = [segment.num_rows for segment, _, _ in cases]
        shapes = (_NUM_HEADS, _KEY_DIM), (_NUM_KV_HEADS, _KEY_DIM), (_NUM_KV_HEADS, _VALUE_DIM)
        query, key, value = (torch.randn(heads, sum(sizes), dim) for heads, dim in shapes)
        rule = ScoreRule(_REACHES[kind], _SCALE, softcap, torch.randn(_NUM_HEADS) if has_sinks else None)
        expected = []
        parts = [torch.split(each, sizes, dim=1) for each in (query, key, value)]
        for (segment, tree, num_stored), *own in zip(cases, *parts, strict=True):
            expected += _attend_slowly(segment, tree, num_stored, own, rule)

        with torch.inference_mode():
            found = SegmentAttention([segment for segment, _, _ in cases], _CPU).attend(0, query, key, value, rule)

        torch.testing.assert_close(found.double().flatten(0, 1), torch.stack(expected), rtol=1e-5, atol=1e-5)


def test_rows_whose_keys_are_not_stored_attend_to_those_of_the_pass() -> None:
    states = torch.randn(2, 2, 3, 4)
    query, key = states[0], states[1]
    out = SegmentAttention([build_lone_segment(range(7, 10))], _CPU).attend(0, query, key, key, ScoreRule(Reach(), 1.0))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, key, is_causal=True, scale=1.0)
    torch.testing.assert_close(out.transpose(0, 1), expected)
