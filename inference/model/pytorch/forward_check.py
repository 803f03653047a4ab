"""Checks by trial runs that a model gives the same logits here as in transformers.

Layers that carry a state, mix neighbouring tokens or add positions to scores would give wrong logits without any error.
With the weights loaded, a few short passes find them, also where no configuration mentions them:

1. Some layer calls `attend`.
2. With all windows narrowed to a few tokens, two packed sequences, each with a tree, get the logits that transformers
   computes for each path alone, with its own attention.
3. Other tokens in the neighbour and in other branches change nothing.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

import torch

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import SequenceInput
from inference.model.pytorch.kv_cache import TorchSequenceCache, build_lone_segment
from inference.model.pytorch.runner import Runner
from inference.model.pytorch.transformers_hook import ATTENTION_NAME, OWN_ATTENTION, AttentionCall

# Differences of a row of logits: root mean square, divided by the row's standard deviation. The default model has 1e-6
# in float32. Layers that must be refused had 0.007 to 1.7 in float32, with random weights.
_TOLERANCES = {torch.float64: 1e-4, torch.float32: 1e-3}
# In half precision, of three quarters of the rows: a rounding error may route some tokens to other experts. Families
# with four layers of random weights had 0.003 to 0.08.
_HALF_TOLERANCE = 0.15
_NEIGHBOUR_SHARE = 0.1  # of the tolerance: what a neighbour may change. All families had 0


def _find_differences(logits: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The difference of each row of logits, as a share of the row's spread."""
    logits, expected = logits.float(), expected.float()
    return (logits - expected).pow(2).mean(dim=-1).sqrt() / expected.std(dim=-1)


def _find_difference(logits: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> float:
    """The largest difference of a row; in half precision, the largest of three quarters of the rows."""
    differences = _find_differences(logits, expected)
    return (differences.max() if dtype in _TOLERANCES else differences.quantile(0.75)).item()


def _find_neighbour_tolerance(dtype: torch.dtype) -> float:
    """The allowed difference of the same computation beside other neighbours."""
    return _NEIGHBOUR_SHARE * _TOLERANCES.get(dtype, _HALF_TOLERANCE)


# Numbers of tokens. They differ, so that `build_reach` can tell windows and chunks apart.
NARROW_WINDOW = 5
NARROW_CHUNK = 4

_NARROW_SIZES = (
    (re.compile(r"(.*_)?(sliding_window(_size)?|window_size|local_attention)"), NARROW_WINDOW),
    (re.compile(r"attention_chunk_size"), NARROW_CHUNK),
)  # by the names of attributes


@contextmanager
def narrow_windows(model: torch.nn.Module) -> Iterator[None]:
    """Inside the context, all windows and chunks that the model's configurations and modules name are small."""
    with ExitStack() as restoring:
        for owner in _list_owners(model):
            for name, value in list(vars(owner).items()):
                size = next((size for pattern, size in _NARROW_SIZES if pattern.fullmatch(name)), None)
                if size is not None and type(value) is int and value > size:
                    restoring.callback(setattr, owner, name, value)
                    setattr(owner, name, size)
        yield


def _list_owners(model: torch.nn.Module) -> list[Any]:
    """The model's modules and all their configurations, each once."""
    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    configs = [config for config in configs if config is not None]
    configs += [config.get_text_config(decoder=True) for config in configs]
    return [*model.modules(), *{id(config): config for config in configs}.values()]


_NUM_PATH_TOKENS = 11  # tokens of each path below; equal, so that all paths are one batch
_READ_LENGTHS = (7, 4)  # tokens of the two sequences that are prefilled in a separate pass
_PARENTS = (None, 0, None, 2, 2)  # of the tree's branches; two of the three paths share their first branch
_LEAVES = (1, 3, 4)


def check_forward_pass(model: Any, runner: Runner) -> None:  # a transformers model, which has no types
    """Raises ModelError, with the reason, if `runner` does not give the same logits as `model`."""
    plain = runner.last_calls  # there is a pass when a runner is built
    if not plain:
        raise ModelError(OWN_ATTENTION)
    with narrow_windows(model):
        runner.forward_segments((0, 0), [build_lone_segment(range(2))], ())
        _check_windows(plain, runner.last_calls, runner.max_tokens)
        _check_logits(model, runner)


def _check_windows(plain: Sequence[AttentionCall], narrowed: Sequence[AttentionCall], max_tokens: int) -> None:
    """Raises ModelError if a window is not narrow in the narrowed calls."""
    for before, after in zip(plain, narrowed, strict=True):
        num_tokens, num_checked = before.reach.num_tokens, after.reach.num_tokens
        if num_tokens is None or num_tokens >= max_tokens:
            continue
        if num_checked is None or num_checked > NARROW_WINDOW:
            raise ModelError(
                f"its code takes the window of {num_tokens} tokens in {type(before.module).__name__} from an unknown "
                "place, so that it cannot be checked"
            )


def _check_logits(model: Any, runner: Runner) -> None:
    """Compares packed steps over two sequences with one batch of all their paths, run by transformers itself."""
    random = Random(0)
    texts = [[random.randrange(runner.vocab_size) for _ in range(_NUM_PATH_TOKENS - 2)] for _ in _READ_LENGTHS]
    branches = [tuple(random.sample(range(runner.vocab_size), len(_PARENTS))) for _ in texts]
    caches = _read_texts(runner, texts)
    packed = _forward_packed(runner, caches, texts, branches)
    _check_against_transformers(model, runner, packed, texts, branches)
    other_texts = [texts[0], texts[1][:4] + random.choices(range(runner.vocab_size), k=len(texts[1]) - 4)]
    other_branches = [branches[0][:2] + branches[1][2:], branches[0]]
    beside_others = _forward_packed(runner, caches, other_texts, other_branches)
    difference = _find_differences(beside_others[:3], packed[:3]).max().item()  # the first chain and two branches
    if not difference <= _find_neighbour_tolerance(runner.dtype):
        raise ModelError(
            f"the tokens of a neighbour in the same forward pass change the logits of a sequence by {difference:.1g} "
            "of their spread"
        )


def _check_against_transformers(
    model: Any, runner: Runner, packed: torch.Tensor, texts: Sequence[list[int]], branches: Sequence[tuple[int, ...]]
) -> None:
    expected = _forward_alone(model, runner, texts, branches)
    if (expected.std(dim=-1) == 0).any():
        raise ModelError("its logits are the same for all tokens, so its weights are not those of a trained model")
    difference = _find_difference(packed, expected, runner.dtype)
    tolerance, dtype = _TOLERANCES.get(runner.dtype, _HALF_TOLERANCE), str(runner.dtype).removeprefix("torch.")
    if not difference <= tolerance:  # not so for NaN, either
        raise ModelError(
            "two sequences in one pass do not get the logits that each gets alone: it has other layers than attention, "
            f"counts positions itself (a difference of {difference:.1g} of their spread; {tolerance:.1g} is allowed), "
            f"or is rounded too much in {dtype}"
        )


def _read_texts(runner: Runner, texts: Sequence[list[int]]) -> list[TorchSequenceCache]:
    """Caches with the first tokens of each text, read in one pass."""
    caches = [runner.new_cache() for _ in texts]
    read = [TokenTree(tuple(text[:length])) for text, length in zip(texts, _READ_LENGTHS, strict=True)]
    runner.forward([SequenceInput(cache, tree, wants_logits=False) for cache, tree in zip(caches, read, strict=True)])
    for cache, tree in zip(caches, read, strict=True):
        cache.keep(tree)
    return caches


def _forward_packed(
    runner: Runner,
    caches: Sequence[TorchSequenceCache],
    texts: Sequence[list[int]],
    branches: Sequence[tuple[int, ...]],
) -> torch.Tensor:
    """The logits of the nodes of both trees: [num_nodes, vocab_size]. Keeps nothing in the caches."""
    return runner.forward([
        SequenceInput(cache, TokenTree(tuple(text[cache.num_tokens :]), branch_ids, _PARENTS))
        for cache, text, branch_ids in zip(caches, texts, branches, strict=True)
    ])  # fmt: skip


@contextmanager
def _use_eager_attention(model: Any) -> Iterator[None]:
    """Inside the context, the model uses transformers' own attention."""
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(ATTENTION_NAME)


@torch.inference_mode()
def _forward_alone(
    model: Any, runner: Runner, texts: Sequence[list[int]], branches: Sequence[tuple[int, ...]]
) -> torch.Tensor:
    """The same logits, computed with transformers' own attention."""
    tree = TokenTree((0,), (0,) * len(_PARENTS), _PARENTS)
    paths = [tree.find_path(leaf) for leaf in _LEAVES]
    ids = [
        [*text, *(branch_ids[branch] for branch in path)]
        for text, branch_ids in zip(texts, branches, strict=True)
        for path in paths
    ]
    with _use_eager_attention(model):
        logits = model(input_ids=torch.tensor(ids, device=runner.device), use_cache=False).logits.float()
    places = [(0, -3)]  # of each node, the chain's end first: its path, and its place there
    for branch in range(len(_PARENTS)):
        places.append(next((number, path.index(branch) - 2) for number, path in enumerate(paths) if branch in path))
    firsts = range(0, len(ids), len(paths))
    return torch.stack([logits[first + number, at] for first in firsts for number, at in places])
