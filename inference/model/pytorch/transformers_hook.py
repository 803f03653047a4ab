"""The attention function that transformers calls in each layer: every sequence sees only its own tokens.

A model is loaded with `attn_implementation=ATTENTION_NAME`; its code runs unchanged. One forward pass contains
the new tokens of several sequences, packed in one row; the pass's attention knows the segment of each. Many families
do not hand the arguments of the model's call down to their layers. Therefore every module of a model has a reference to
one `RunningPass`, in which the runner puts the attention of the pass that it starts.

transformers also asks for a mask, once for each kind of layer. It gets the mask's reach only (`Reach`), which comes
back to `attend` as the layer's mask.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from inference.errors import ModelError
from inference.model.pytorch.kv_cache import LayerShape


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back the rows of a layer see: to the first token if both numbers are None."""

    window: int | None = None  # the nearest tokens, the row's own included
    chunk: int | None = None  # tokens of the row's own chunk; chunks of this size begin at position 0
    fault: str | None = None  # what else the mask does, which is not supported

    @property
    def num_tokens(self) -> int | None:
        """The most tokens that a row sees."""
        return self.window if self.chunk is None else self.chunk

    def __getattr__(self, name: str) -> NoReturn:
        """Refuses models whose code does more with a mask than to pass it on."""
        if name.startswith("__"):  # Python asks for these itself
            raise AttributeError(name)
        raise ModelError(f"its code computes with the attention's mask (.{name}), and here each sequence has its own")

    def __getitem__(self, _index: object) -> NoReturn:
        raise ModelError("its code takes a part of the attention's mask, and here each sequence has its own")


def build_reach(*_args: Any, config: Any = None, local_size: int | None = None, **others: Any) -> Reach:
    """The reach of a mask that transformers describes by its own arguments."""
    if "allow_is_bidirectional_skip" in others:
        return Reach(fault="lets tokens see those after them, so it does not predict the next token")
    if others.get("use_vmap"):
        return Reach(fault="joins the mask of earlier tokens with another one")
    if local_size is None:
        return Reach()
    if getattr(config, "attention_chunk_size", None) != local_size:
        return Reach(window=local_size)
    if getattr(config, "sliding_window", None) == local_size:
        return Reach(fault=f"has windows and chunks of the same {local_size} tokens, so they cannot be told apart")
    return Reach(chunk=local_size)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreRule:
    """The arguments of one layer's attention."""

    reach: Reach
    scale: float  # of the products of queries and keys
    softcap: float | None = None  # bounds the scores
    sinks: torch.Tensor | None = None  # [num_heads], device: for each head, the score of one more key, without a value


ATTENTION_NAME = "midtoken_tree"
OWN_ATTENTION = "its code in transformers has attention of its own, which cannot be replaced"  # a reason to refuse

_RUNNING = "midtoken_pass"  # the attribute of each module

# Arguments of attention functions in transformers that change the result and are not supported.
_UNSUPPORTED_ARGUMENTS = {
    "position_bias": "positions added to attention scores",
    "indices": "attention to selected tokens only",
    "block_indices": "attention to selected blocks only",
}

# Arguments that do not change the result: for other attention functions, or about what a call returns.
_IGNORED_ARGUMENTS = frozenset({
    "cache_position", "cu_seq_lens_k", "cu_seq_lens_q", "deterministic", "dropout", "is_causal", "logits_to_keep",
    "max_length_k", "max_length_q", "num_items_in_batch", "output_attentions", "output_hidden_states",
    "output_router_logits", "position_embeddings", "position_ids", "return_dict", "use_cache",
})  # fmt: skip


# Stores the new keys and values of one layer, and returns the attention of a pass: [num_rows, num_heads, value_dim]. It
# gets the layer's number, queries [num_heads, num_rows, key_dim], keys and values [num_kv_heads, num_rows, dim], and a
# rule.
PassAttention = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor, ScoreRule], torch.Tensor]


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """A call of `attend` in a forward pass."""

    module: torch.nn.Module
    reach: Reach
    shape: LayerShape


class RunningPass:
    """The forward pass that a model is in.

    The n-th call of `attend` in a pass has the n-th layer of the pool, whatever number its module has.
    """

    def __init__(self) -> None:
        self.attention: PassAttention | None = None  # outside a pass
        self.calls: list[AttentionCall] = []  # so far; they stay when the pass has ended

    @contextmanager
    def use(self, attention: PassAttention) -> Iterator[None]:
        """Inside the context, the model runs a pass with this attention."""
        self.attention, self.calls = attention, []
        try:
            yield
        finally:
            self.attention = None


def attach_running_pass(model: torch.nn.Module) -> RunningPass:
    """Gives all modules of `model` a reference to the model's `RunningPass`, which is returned."""
    running: RunningPass = getattr(model, _RUNNING, None) or RunningPass()
    for module in model.modules():
        setattr(module, _RUNNING, running)
    return running


def register_attention() -> None:
    """Registers ATTENTION_NAME with transformers."""
    AttentionInterface.register(ATTENTION_NAME, attend)
    AttentionMaskInterface.register(ATTENTION_NAME, build_reach)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, num_heads, num_rows, key_dim], device
    key: torch.Tensor,  # [1, num_kv_heads, num_rows, key_dim], device
    value: torch.Tensor,  # [1, num_kv_heads, num_rows, value_dim], device
    attention_mask: Reach | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,  # [num_heads], device: the scores of attention sinks
    **others: Any,  # further arguments, which differ between the model families of transformers
) -> tuple[torch.Tensor, None]:
    """Attention of each segment's rows to its keys. Returns [1, num_rows, num_heads, value_dim].

    Raises ModelError if the layer has other arguments that change the result.
    """
    _check_arguments(module, attention_mask, others)
    running: RunningPass | None = getattr(module, _RUNNING, None)
    if running is None or running.attention is None:
        raise ModelError(f"{type(module).__name__} is called outside a forward pass of its runner")
    # The mask decides in transformers, whether or not a family passes the window to its attention as well.
    reach = attention_mask if attention_mask is not None else Reach(window=sliding_window)
    layer = len(running.calls)
    shape = LayerShape(key.shape[1], key.shape[3], value.shape[3])
    running.calls.append(AttentionCall(module, reach, shape))
    rule = ScoreRule(reach, query.shape[3] ** -0.5 if scaling is None else scaling, softcap, s_aux)
    return running.attention(layer, query[0], key[0], value[0], rule)[None], None


def _check_arguments(module: torch.nn.Module, mask: Any, others: dict[str, Any]) -> None:
    layer = type(module).__name__
    if mask is not None and not isinstance(mask, Reach):
        raise ModelError(f"{layer} uses a mask of the model's own (attention_mask)")
    if mask is not None and mask.fault is not None:
        raise ModelError(f"{layer} {mask.fault}")
    for name, value in others.items():
        if value is not None and name not in _IGNORED_ARGUMENTS:
            meaning = _UNSUPPORTED_ARGUMENTS.get(name, "an argument of attention that is not known here")
            raise ModelError(f"{layer} uses {meaning} ({name})")
    if others.get("is_causal") is False:
        raise ModelError(f"{layer} lets tokens see those after them, so it does not predict the next token")
