"""Random forward passes over sequences that share a pool, and their attention computed row by row.

`attend_plainly` is an attention kernel in plain torch.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch

from inference.healing.token_tree import TokenTree
from inference.model.pytorch.attention import PackedPass
from inference.model.pytorch.pool import LayerShape, Segment, StoredToken, TokenPool, TorchSequenceCache
from inference.model.pytorch.transformers_hook import PassAttention, Reach, ScoreRule

REACHES = {
    "all": Reach(),
    "window of 2": Reach(window=2),
    "window of 7": Reach(window=7),
    "wide window": Reach(window=1000),
    "chunk of 3": Reach(chunk=3),
}
_SCALE = 0.7


@dataclass(frozen=True, slots=True)
class PassShape:
    """The sizes of a pass."""

    num_kv_heads: int = 2
    group: int = 2  # query heads for each head of keys
    key_dim: int = 3
    value_dim: int = 2
    num_sequences: int = 3
    max_kept: int = 40
    dtype: torch.dtype = torch.float32

    @property
    def num_heads(self) -> int:
        return self.num_kv_heads * self.group


@dataclass(frozen=True, slots=True, eq=False)
class TestPass:
    """A forward pass, and all that decides its result."""

    __test__ = False

    shape: PassShape
    pool: TokenPool
    segments: Sequence[Segment]
    query: torch.Tensor  # [num_heads, num_rows, key_dim]
    key: torch.Tensor  # [num_kv_heads, num_rows, key_dim]
    value: torch.Tensor
    sinks: torch.Tensor  # [num_heads]
    holders: Sequence[TorchSequenceCache | StoredToken]  # of the slots


def build_pass(seed: int, shape: PassShape = PassShape()) -> TestPass:  # frozen
    """Sequences with random kept tokens in random slots, each with a random tree; some have stored branches."""
    random, generator = Random(seed), torch.Generator().manual_seed(seed)
    pool = TokenPool([LayerShape(shape.num_kv_heads, shape.key_dim, shape.value_dim)], shape.dtype, torch.device("cpu"))
    holders: list[TorchSequenceCache | StoredToken] = []
    segments = []
    for _ in range(shape.num_sequences):
        cache = TorchSequenceCache(pool)
        _read(cache, random.randint(0, shape.max_kept))
        if holders and random.random() < 0.4:
            cache = _choose_cache(random, holders).fork()
            _read(cache, random.randint(0, 3))
        holders.append(cache)
        stored = _copy_branches(cache, random) if cache.num_tokens and random.random() < 0.4 else []
        holders += stored
        tree = _draw_tree(random, stored)
        cache.reserve(tree.num_rows)
        segments.append(cache.build_segment(tree, stored))
        _scatter(pool, random, holders)
    num_rows = sum(segment.num_rows for segment in segments)
    with torch.inference_mode():
        for plane in pool.find(0):
            plane.copy_(torch.randn(plane.shape, generator=generator))
        draw = [
            torch.randn(heads, num_rows, dim, generator=generator).to(shape.dtype)
            for heads, dim in (
                (shape.num_heads, shape.key_dim),
                (shape.num_kv_heads, shape.key_dim),
                (shape.num_kv_heads, shape.value_dim),
            )
        ]
        sinks = torch.randn(shape.num_heads, generator=generator).to(shape.dtype)
    return TestPass(shape, pool, segments, draw[0], draw[1], draw[2], sinks, holders)


@torch.inference_mode()
def check_pass(
    build: Callable[[Sequence[Segment]], PassAttention],
    test: TestPass,
    reach: Reach,
    *,
    softcap: float | None = None,
    has_sinks: bool = False,
    tolerance: float = 1e-5,
) -> None:
    """Asserts that the attention of the pass is what each row alone gives, computed in float64."""
    sinks = test.sinks if has_sinks else None
    out = build(test.segments)(0, test.query, test.key, test.value, ScoreRule(reach, _SCALE, softcap, sinks))
    expected = compute_slowly(test, reach, softcap, sinks)
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


def compute_slowly(test: TestPass, reach: Reach, softcap: float | None, sinks: torch.Tensor | None) -> torch.Tensor:
    """The attention of each row, head by head. Returns [num_rows, num_heads, value_dim] float64."""
    outputs, first = [], 0
    for segment in test.segments:
        keys, values = (states.double() for states in _gather(test, segment, first))
        for row in range(segment.num_rows):
            seen = [key for key in range(len(segment.key_slots)) if _sees(segment, row, key, reach)]
            for head in range(test.shape.num_heads):
                own_keys, own_values = (states[head // test.shape.group, seen] for states in (keys, values))
                scores = (own_keys @ test.query[head, first + row].double() * _SCALE).tolist()
                if softcap is not None:
                    scores = [softcap * math.tanh(score / softcap) for score in scores]
                weights = torch.tensor([math.exp(score) for score in scores], dtype=torch.float64)
                total = float(weights.sum()) + (0 if sinks is None else math.exp(sinks[head]))
                outputs.append((weights[:, None] * own_values).sum(0) / total)
        first += segment.num_rows
    return torch.stack(outputs).reshape(first, test.shape.num_heads, test.shape.value_dim)


def _gather(test: TestPass, segment: Segment, first_row: int) -> list[torch.Tensor]:
    """The keys and the values of a segment in the order of its key slots, with those of the new rows."""
    found = []
    assert isinstance(segment.pool, TokenPool)
    for plane, new in zip(segment.pool.find(0), (test.key, test.value), strict=True):
        states = plane[:, segment.key_slots].clone()
        for row, slot in enumerate(segment.new_slots):
            [place] = np.flatnonzero(segment.key_slots == slot)
            states[:, place] = new[:, first_row + row]
        found.append(states)
    return found


def _sees(segment: Segment, row: int, key: int, reach: Reach) -> bool:
    is_visible = segment.visible is None or key < segment.num_open or segment.visible[row, key - segment.num_open]
    return bool(is_visible) and _is_near(int(segment.positions[row]), int(segment.key_positions[key]), reach)


def _is_near(own: int, other: int, reach: Reach) -> bool:
    if reach.chunk is not None:
        return own // reach.chunk == other // reach.chunk
    return reach.window is None or own - other < reach.window


def attend_plainly(
    packed: PackedPass, keys: torch.Tensor, values: torch.Tensor, query: torch.Tensor, rule: ScoreRule
) -> torch.Tensor:
    """Attention of each row of each tile by itself, from nothing but what a kernel gets."""
    group = query.shape[0] // keys.shape[0]
    out = query.new_full((query.shape[1], query.shape[0], values.shape[2]), torch.nan)
    for first_row, num_rows, first_key, end, _, num_open, first_word, num_words in packed.tiles.tolist():
        slots = packed.key_slots[first_key : first_key + end]
        places = packed.key_positions[first_key : first_key + end].tolist()
        for row in range(num_rows):
            words = packed.bits[first_word + row * num_words :][:num_words].tolist()
            bits = [1] * num_open + [(words[at // 64] >> (at % 64)) & 1 for at in range(end - num_open)]
            own = int(packed.positions[first_row + row])
            sees = [bool(bits[key]) and _is_near(own, places[key], rule.reach) for key in range(end)]
            for head in range(query.shape[0]):
                scores = keys[head // group, slots][sees] @ query[head, first_row + row] * rule.scale
                if rule.softcap is not None:
                    scores = (scores / rule.softcap).tanh() * rule.softcap
                out[first_row + row, head] = torch.softmax(scores, dim=0) @ values[head // group, slots][sees]
    return out


def _read(cache: TorchSequenceCache, num_tokens: int) -> None:
    if num_tokens:
        tree = TokenTree((0,) * num_tokens)
        cache.reserve(num_tokens)
        cache.build_segment(tree)
        cache.keep(tree)


def _copy_branches(cache: TorchSequenceCache, random: Random) -> list[StoredToken]:
    """Branches that a pass has read before, one below the other."""
    parents = (None, 0, 1)[: random.randint(1, 3)]
    tree = TokenTree((), (0,) * len(parents), parents)
    cache.reserve(tree.num_rows)
    cache.build_segment(tree)
    copies = cache.copy_branches(tree)
    cache.keep(tree)
    return copies


def _draw_tree(random: Random, stored: Sequence[StoredToken]) -> TokenTree:
    num_stored = len(stored)
    chain = (0,) * (0 if stored else random.choice([1, 1, 2, 9, 21]))
    parents: list[int | None] = [None if index == 0 else index - 1 for index in range(num_stored)]
    for index in range(num_stored, num_stored + random.choice([0, 1, 4, 70] if chain else [1, 4])):
        parents.append(random.choice([None, *range(index)]))
    return TokenTree(chain, (0,) * len(parents), tuple(parents))


def _choose_cache(random: Random, holders: Sequence[TorchSequenceCache | StoredToken]) -> TorchSequenceCache:
    return random.choice([holder for holder in holders if isinstance(holder, TorchSequenceCache)])


def _scatter(pool: TokenPool, random: Random, holders: list[TorchSequenceCache | StoredToken]) -> None:
    """Frees some slots and holds others, so that the next sequence gets slots that do not follow each other."""
    cache, tree = TorchSequenceCache(pool), TokenTree((), (0,) * 9, (None,) * 9)
    cache.reserve(tree.num_rows)
    cache.build_segment(tree)
    holders += random.sample(cache.copy_branches(tree), k=4)
    cache.keep(tree)
