"""Checks by trial runs that a model gives the same logits here as in transformers.

Layers that carry a state, mix neighbouring tokens or add positions to scores would give wrong logits without any error.
With the weights loaded, a few short passes find them, also where no configuration mentions them:

1. Each layer calls `attend`.
2. With all windows narrowed to a few tokens, two packed sequences, each with a tree, get the logits that transformers
   computes for each path alone, with its own attention.
3. Other tokens in the neighbour and in other branches change nothing.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import torch

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.attention import ATTENTION_NAME, OWN_ATTENTION, AttentionCall, Plan, Reach
from inference.model.kv_cache import SequenceCache
from inference.model.probe import Probe
from inference.model.runner import Part, Runner
from inference.model.windows import NARROW_CHUNK, NARROW_WINDOW, narrow_windows

# Root mean square difference of a row of logits, divided by the row's standard deviation. The default model has 1e-6 in
# float32 and 0.02 in bfloat16. Layers that must be refused had 0.007 to 1.7 in float32, with random weights.
_TOLERANCES = {torch.float64: 1e-4, torch.float32: 1e-3}
_HALF_TOLERANCE = 0.25  # a rounding error may route a token to another expert; the other checks are exact
_NEIGHBOUR_SHARE = 0.1  # of the tolerance: what a neighbour may change. Only the experts' batches depend on it

_NUM_PATH_TOKENS = 11  # tokens of each path below; equal, so that all paths are one batch
_READ_LENGTHS = (7, 4)  # tokens of the two sequences that are prefilled in a separate pass
_PARENTS = (None, 0, None, 2, 2)  # of the tree's branches; two of the three paths share their first branch
_LEAVES = (1, 3, 4)


def check_forward_pass(model: Any, runner: Runner) -> None:  # a transformers model, which has no types
    """Raises ModelError, with the reason, if `runner` does not give the same logits as `model`."""
    plain = _record_calls(runner)
    _check_layers(model, plain)
    with narrow_windows(model):
        _check_windows(plain, _record_calls(runner), runner.max_tokens)
        _check_logits(model, runner)


def _record_calls(runner: Runner) -> Sequence[AttentionCall]:
    plan = Plan([Probe().build_segment(range(2), 0, runner.device)])
    runner.forward_plan((0, 0), plan, ())
    return plan.calls


def _check_layers(model: Any, calls: Sequence[AttentionCall]) -> None:
    """Raises ModelError if a layer does not call `attend`."""
    called = {call.module for call in calls}
    num_layers = model.config.get_text_config(decoder=True).num_hidden_layers
    stacks = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    stacks = [stack for stack in stacks if len(stack) == num_layers]
    silent = [[i for i, layer in enumerate(stack) if called.isdisjoint(layer.modules())] for stack in stacks]
    if stacks and all(silent):
        stack, layers = min(zip(stacks, silent, strict=True), key=lambda pair: len(pair[1]))
        layer = layers[0]
        raise ModelError(
            f"layer {layer} ({type(stack[layer]).__name__}) does not call the replaceable attention of transformers: "
            "it is another kind of layer, or has attention of its own"
        )
    if not calls:
        raise ModelError(OWN_ATTENTION)


def _check_windows(plain: Sequence[AttentionCall], narrowed: Sequence[AttentionCall], max_tokens: int) -> None:
    """Raises ModelError if a window is not narrow in the narrowed calls."""
    for before, after in zip(plain, narrowed, strict=True):
        num_tokens = before.reach.num_tokens
        is_checked = after.reach in (Reach(window=NARROW_WINDOW), Reach(chunk=NARROW_CHUNK))
        if num_tokens is not None and num_tokens < max_tokens and not is_checked:
            raise ModelError(
                f"its code takes the window of {num_tokens} tokens in {type(before.module).__name__} from an unknown "
                "place, so that it cannot be checked"
            )


def measure_difference(logits: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference of a row of logits, as a share of the row's spread."""
    return ((logits - expected).pow(2).mean(dim=-1).sqrt() / expected.std(dim=-1)).max().item()


def find_tolerance(dtype: torch.dtype) -> float:
    """The allowed difference of two ways to compute the same logits."""
    return _TOLERANCES.get(dtype, _HALF_TOLERANCE)


def find_neighbour_tolerance(dtype: torch.dtype) -> float:
    """The allowed difference of the same computation beside other neighbours."""
    return _NEIGHBOUR_SHARE * find_tolerance(dtype)


def _check_logits(model: Any, runner: Runner) -> None:
    """Compares packed steps over two sequences with one batch of all their paths, run by transformers itself."""
    random = Random(0)
    texts = [[random.randrange(runner.vocab_size) for _ in range(_NUM_PATH_TOKENS - 2)] for _ in _READ_LENGTHS]
    branches = [tuple(random.sample(range(runner.vocab_size), len(_PARENTS))) for _ in texts]
    caches = _read_texts(runner, texts)
    packed = _forward_packed(runner, caches, texts, branches)
    difference = measure_difference(packed, _forward_alone(model, runner, texts, branches))
    if not difference <= find_tolerance(runner.dtype):  # also true for NaN
        raise ModelError(
            "two sequences in one forward pass do not get the logits that each gets alone: "
            f"they differ by {difference:.1g} of their spread, where {find_tolerance(runner.dtype):.1g} is allowed"
        )
    other_texts = [texts[0], texts[1][:4] + random.choices(range(runner.vocab_size), k=len(texts[1]) - 4)]
    other_branches = [branches[0][:2] + branches[1][2:], branches[0]]
    beside_others = _forward_packed(runner, caches, other_texts, other_branches)
    difference = measure_difference(beside_others[:3], packed[:3])  # the first chain and its first two branches
    if not difference <= find_neighbour_tolerance(runner.dtype):
        raise ModelError(
            f"the tokens of a neighbour in the same forward pass change the logits of a sequence by {difference:.1g} "
            "of their spread"
        )


def _read_texts(runner: Runner, texts: Sequence[list[int]]) -> list[SequenceCache]:
    """Caches with the first tokens of each text, read in one pass."""
    caches = [runner.new_cache() for _ in texts]
    read = [TokenTree(tuple(text[:length])) for text, length in zip(texts, _READ_LENGTHS, strict=True)]
    runner.forward([Part(cache, tree, wants_logits=False) for cache, tree in zip(caches, read, strict=True)])
    for cache, tree in zip(caches, read, strict=True):
        cache.keep(tree, None)
    return caches


def _forward_packed(
    runner: Runner, caches: Sequence[SequenceCache], texts: Sequence[list[int]], branches: Sequence[tuple[int, ...]]
) -> torch.Tensor:
    """The logits of the nodes of both trees: [num_nodes, vocab_size]. Keeps nothing in the caches."""
    return runner.forward([
        Part(cache, TokenTree(tuple(text[cache.num_tokens :]), branch_ids, _PARENTS))
        for cache, text, branch_ids in zip(caches, texts, branches, strict=True)
    ])  # fmt: skip


def _forward_eagerly(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Logits of a batch, with transformers' own attention. Raises ModelError if its positions do not count from 0."""
    model.set_attn_implementation("eager")
    try:
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits.float()
        positions = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
        with_positions = model(input_ids=ids, position_ids=positions, use_cache=False).logits.float()
    finally:
        model.set_attn_implementation(ATTENTION_NAME)
    if not torch.allclose(logits, with_positions, rtol=1e-4, atol=1e-4):
        raise ModelError("its code does not count the positions of tokens from 0")
    return logits


@torch.inference_mode()
def _forward_alone(
    model: Any, runner: Runner, texts: Sequence[list[int]], branches: Sequence[tuple[int, ...]]
) -> torch.Tensor:
    """The same logits, computed with the model's own attention."""
    tree = TokenTree((0,), (0,) * len(_PARENTS), _PARENTS)
    paths = [tree.find_path(leaf) for leaf in _LEAVES]
    ids = [
        [*text, *(branch_ids[branch] for branch in path)]
        for text, branch_ids in zip(texts, branches, strict=True)
        for path in paths
    ]
    logits = _forward_eagerly(model, torch.tensor(ids, device=runner.device))
    rows = []
    for first in range(0, len(ids), len(paths)):
        rows.append(logits[first, -3])  # after the chain
        for branch in range(len(_PARENTS)):
            path = next(number for number, path in enumerate(paths) if branch in path)
            rows.append(logits[first + path, paths[path].index(branch) - 2])
    return torch.stack(rows)
