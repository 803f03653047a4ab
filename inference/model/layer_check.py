"""Checks that a model's layers can run packed, over token trees, with the keys and values of this package's caches.

Layers of softmax attention, full or within a sliding window, can. Other layers (state-space, linear, convolution),
soft caps, sinks and positions added to scores would give wrong logits without any error. Two checks refuse such models
when they are loaded:

1. `check_config`, before the weights are read, checks the configuration.
2. `check_forward_pass`, with the weights, checks that each layer calls `attend` once, with the window of its mask, and
   that two packed sequences, each with a tree, get the logits that transformers computes for each path alone. It finds
   layers that the configuration does not mention.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
import transformers

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.attention import ATTENTION_NAME, attend
from inference.model.kv_cache import CacheShape
from inference.model.runner import Part, Runner

_RECORDER_NAME = f"{ATTENTION_NAME}_recorder"
_LAYER_TYPES = ("full_attention", "sliding_attention")

# Root mean square difference of a row of logits, divided by the row's standard deviation. The default model has 1e-6 in
# float32 and 0.02 in bfloat16. Layers that must be refused had 0.007 to 1.7 in float32, with random weights.
_TOLERANCES = {torch.float64: 1e-4, torch.float32: 1e-3}
_HALF_TOLERANCE = 0.25  # a rounding error may route a token to another expert; the other checks are exact

_NUM_PATH_TOKENS = 11  # tokens of each path below; equal, so that all paths are one batch
_READ_LENGTHS = (7, 4)  # tokens of the two sequences that are prefilled in a separate pass
_PARENTS = (None, 0, None, 2, 2)  # of the tree's branches; two of the three paths share their first branch
_LEAVES = (1, 3, 4)


def check_config(config: Any) -> None:  # a transformers configuration, which has no types
    """Raises ModelError, with the family, the layer type and the reason, if `config` has unsupported layers."""
    text_config = config.get_text_config()
    family = text_config.model_type
    for index, layer_type in enumerate(getattr(text_config, "layer_types", None) or ()):
        if layer_type not in _LAYER_TYPES:
            raise _refuse(family, f"layer {index} is of the type {layer_type}, not {' or '.join(_LAYER_TYPES)}")
    if getattr(text_config, "num_attention_heads", None) is None:
        raise _refuse(family, "the configuration names no num_attention_heads, so the layers are not attention")
    for name, value in text_config.to_dict().items():
        if "attn" in name and "softcap" in name and value:
            raise _refuse(family, f"its attention has a soft cap on scores ({name} is {value})")
        if name in ("alibi", "use_alibi") and value:
            raise _refuse(family, f"its attention adds positions to the scores ({name} is {value})")


def check_forward_pass(model: Any, runner: Runner) -> None:  # a transformers model, which has no types
    """Raises ModelError, with the family and the reason, if `runner` does not give the same logits as `model`."""
    family = model.config.get_text_config().model_type
    try:
        _check_layer_calls(model, runner)
        _check_logits(model, runner)
    except ModelError as error:
        raise _refuse(family, str(error)) from error
    except Exception as error:  # the code of some hundred families raises undocumented exceptions
        reason = f"a forward pass failed, so its code does not fit this attention ({type(error).__name__}: {error})"
        raise _refuse(family, reason) from error


def _refuse(family: str, reason: str) -> ModelError:
    return ModelError(f"models of the family {family!r} cannot be run: {reason}")


@dataclass(slots=True)
class _Recorder:
    """Records a model's calls of its attention in a forward pass. A window is a number of tokens to look back."""

    shape: CacheShape
    num_calls: Counter[int] = field(default_factory=Counter)  # by layer
    layer_windows: set[int | None] = field(default_factory=set)  # passed to the attention by the layers
    mask_windows: set[int | None] = field(default_factory=set)  # of the masks that the model builds

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *others: Any,
        **named: Any,
    ) -> tuple[torch.Tensor, None]:
        """Records the call and forwards it to `attention.attend`."""
        layer = int(module.layer_idx)  # type: ignore[arg-type]  # transformers sets it on attention modules
        expected = (self.shape.num_kv_heads, self.shape.head_dim)
        for kind, states in (("keys", key), ("values", value)):
            if (states.shape[1], states.shape[3]) != expected:
                raise ModelError(
                    f"layer {layer} ({type(module).__name__}) has {kind} of {states.shape[1]} heads of "
                    f"{states.shape[3]} numbers, where the configuration says {expected[0]} of {expected[1]}"
                )
        self.num_calls[layer] += 1
        self.layer_windows.add(named.get("sliding_window"))
        return attend(module, query, key, value, *others, **named)

    def build_mask(self, *_args: Any, local_size: int | None = None, **_kwargs: Any) -> None:
        """Returns None, since every segment has its own mask. `local_size` is the mask's window."""
        self.mask_windows.add(local_size)


def _check_layer_calls(model: Any, runner: Runner) -> None:
    recorder = _Recorder(runner.cache_shape)
    transformers.AttentionInterface.register(_RECORDER_NAME, recorder.attend)
    transformers.AttentionMaskInterface.register(_RECORDER_NAME, recorder.build_mask)
    with _use_attention(model, _RECORDER_NAME):
        logits = runner.forward([Part(runner.new_cache(), TokenTree((0, 0)))])
    for layer in range(runner.cache_shape.num_layers):
        if recorder.num_calls[layer] != 1:
            raise ModelError(
                f"layer {layer}{_describe_layer(model, runner, layer)} calls the replaceable attention of transformers "
                f"{recorder.num_calls[layer]} times in a forward pass, not once: it is another kind of layer"
            )
    layer_windows = _find_narrow(recorder.layer_windows, runner.max_tokens)
    mask_windows = _find_narrow(recorder.mask_windows, runner.max_tokens)
    if layer_windows != mask_windows:
        raise ModelError(
            f"its masks have windows of {mask_windows or 'no'} tokens, but its layers pass {layer_windows or 'none'} "
            "to the attention"
        )
    if logits.shape != (1, runner.vocab_size):
        raise ModelError("its code does not take logits_to_keep, the rows whose logits are wanted")


def _find_narrow(windows: set[int | None], max_tokens: int) -> list[int]:
    """The windows that are shorter than a sequence of `max_tokens`."""
    return sorted(window for window in windows if window is not None and window < max_tokens)


@contextmanager
def _use_attention(model: Any, name: str) -> Iterator[None]:
    """Inside the context, the model uses the attention registered as `name`."""
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(ATTENTION_NAME)


def _describe_layer(model: Any, runner: Runner, layer: int) -> str:
    num_layers = runner.cache_shape.num_layers
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == num_layers:
            return f" ({type(module[layer]).__name__})"
    return ""


def _check_logits(model: Any, runner: Runner) -> None:
    """Compares two packed steps over two sequences with one batch of all their paths, run by transformers itself."""
    random = Random(0)
    texts = [[random.randrange(runner.vocab_size) for _ in range(_NUM_PATH_TOKENS - 2)] for _ in _READ_LENGTHS]
    branches = [tuple(random.sample(range(runner.vocab_size), len(_PARENTS))) for _ in texts]
    packed = _forward_packed(runner, texts, branches)
    alone = _forward_alone(model, runner, texts, branches)
    difference = ((packed - alone).pow(2).mean(dim=-1).sqrt() / alone.std(dim=-1)).max().item()
    tolerance = _TOLERANCES.get(runner.dtype, _HALF_TOLERANCE)
    if not difference <= tolerance:  # also true for NaN
        raise ModelError(
            "two sequences in one forward pass do not get the logits that each gets alone: "
            f"they differ by {difference:.1g} of their spread, where {tolerance:.1g} is allowed"
        )


def _forward_packed(runner: Runner, texts: Sequence[list[int]], branches: Sequence[tuple[int, ...]]) -> torch.Tensor:
    """The logits of the nodes of both trees: [num_nodes, vocab_size]."""
    caches = [runner.new_cache() for _ in texts]
    read = [TokenTree(tuple(text[:length])) for text, length in zip(texts, _READ_LENGTHS, strict=True)]
    runner.forward([Part(cache, tree, wants_logits=False) for cache, tree in zip(caches, read, strict=True)])
    parts = []
    for cache, tree, text, branch_ids in zip(caches, read, texts, branches, strict=True):
        cache.keep(tree, None)
        parts.append(Part(cache, TokenTree(tuple(text[cache.num_tokens :]), branch_ids, _PARENTS)))
    return runner.forward(parts)


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
    with _use_attention(model, "eager"):
        logits = model(input_ids=torch.tensor(ids, device=runner.device), use_cache=False).logits.float()
    rows = []
    for first in range(0, len(ids), len(paths)):
        rows.append(logits[first, -3])  # after the chain
        for branch in range(len(_PARENTS)):
            path = next(number for number, path in enumerate(paths) if branch in path)
            rows.append(logits[first + path, paths[path].index(branch) - 2])
    return torch.stack(rows)
