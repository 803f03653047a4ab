"""Shrinks the default configuration of a model family until its model has some hundred thousand parameters.

Every kind of layer that the default configuration has is kept. Windows, chunks and the original length of scaled RoPE
become shorter than the sequences of the check, so that all of them matter.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

Config = Any  # a transformers configuration, which has no types
Changes = Mapping[str, Any]  # arguments of a configuration; a mapping inside changes a nested configuration

VOCAB_SIZE = 320
MAX_TOKENS = 128  # the longest sequence of a tiny model
ROPE_TOKENS = 32  # the length after which scaled RoPE differs
CHUNK_TOKENS = 16
WINDOW_TOKENS = 8
NUM_HEADS = 4
NUM_KV_HEADS = 2
HEAD_DIM = 16
HIDDEN_SIZE = NUM_HEADS * HEAD_DIM
FFN_SIZE = 96

_MIN_LAYERS, _MAX_LAYERS = 2, 6
_LAYER_COUNTS = re.compile(r"num_hidden_layers|n_layers?|num_layers|(num_)?(en|de)coder_layers|num_blocks")

# The first pattern that matches the whole name of a field gives its value, if that is smaller. Other numbers stay.
_SIZES: tuple[tuple[str, int], ...] = (
    (r".*vocab_size.*|.*_group_vocab", VOCAB_SIZE),
    (r"max_(\w+_)?position\w*|n_positions|n_ctx|max_seq_len|model_max_length|context_length|rel_extent", MAX_TOKENS),
    (r"original_max_position_embeddings", ROPE_TOKENS),
    (r"attention_chunk_size|floor_scale|log_scaling_n_floor|.*attn_chunk_length|.*chunk_size", CHUNK_TOKENS),
    (r".*sliding_window(_size)?|.*window_size|local_attention(_window_len)?|index_topk", WINDOW_TOKENS),
    (r"topk_group|n_shared_experts|num_shared_experts|moe_num_shared_experts|split_ngram_parts", 1),
    (r"max_window_layers|first_k_dense_replace|num_dense_layers", 1),
    (r".*experts_per_tok(en)?|moe_topk|moe_k|top_k_experts|index_topk_blocks|.*groups?|heads_per_ngram", 2),
    (r".*experts|zero_expert_num|.*block_size|image_size|patch_size", 4),
    (r"num_kv_heads|(.*_)?num_key_value_heads|num_query_groups", NUM_KV_HEADS),
    (r"n_heads?|num_heads|.*_heads", NUM_HEADS),
    (r"qk_rope_head_dim", HEAD_DIM // 2),
    (r".*head_?dim|kv_channels|dim_head|attention_head_size|d_head", HEAD_DIM),
    (r"(input_|output_|backbone_)?(hidden|embedding)_size(_global)?|d_model|n_embd|emb_dim|embedding_dim", HIDDEN_SIZE),
    (
        r"word_embed_proj_dim|adapter_(in|out)_dim|adapter_input_size|lru_width|mamba_d_ssm|attention_hidden_size",
        HIDDEN_SIZE,
    ),
    (r".*(intermediate|ffn|inner|dff|dim_ff|feed_forward|_mid_dim).*", FFN_SIZE),
    (r".*(rank|dim|size|state|buckets|prompt_length)|rotary_dim|dim_model_base", HEAD_DIM),
)


def shrink(config: Config) -> dict[str, Any]:
    """The arguments that make a small configuration of the same class. `config`: the default configuration."""
    fields = _read_fields(config)
    num_layers = next((value for name, value in fields.items() if _LAYER_COUNTS.fullmatch(name) and value), 0)
    layers = _choose_layers(fields, num_layers)
    changes = {name: _shrink_field(name, value, num_layers, layers) for name, value in fields.items()}
    changes |= _choose_heads(fields)
    return {name: value for name, value in changes.items() if value != fields[name] or isinstance(value, list)}


def _shrink_field(name: str, value: Any, num_layers: int, layers: Sequence[int]) -> Any:
    if isinstance(value, list) and len(value) == num_layers:
        return [_shrink_value(name, value[layer]) for layer in layers]
    if _LAYER_COUNTS.fullmatch(name) and value:
        return min(value, len(layers))
    return _shrink_value(name, value)


def merge(changes: Changes, more: Changes) -> dict[str, Any]:
    """`changes` with `more`, also inside nested configurations."""
    merged = dict(changes)
    for name, value in more.items():
        inner = merged.get(name)
        merged[name] = merge(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def _read_fields(config: Config) -> dict[str, Any]:
    """The fields of the configuration. A number that the class computes from others is None."""
    values = vars(config)  # getattr raises an error for a field that differs by layer
    fields = {}
    for field in dataclasses.fields(config):
        value = values.get(config.attribute_map.get(field.name, field.name))
        fields[field.name] = None if _is_number(value) and field.default is None else value
    return fields


def _choose_layers(fields: Mapping[str, Any], num_layers: int) -> Sequence[int]:
    """The first layer of each kind, at least _MIN_LAYERS and at most _MAX_LAYERS of them.

    Lists with one item for each layer tell the kinds apart.
    """
    lists = [value for value in fields.values() if isinstance(value, list) and len(value) == num_layers]
    kinds: dict[str, int] = {}
    for layer in range(num_layers):
        kinds.setdefault(repr([value[layer] for value in lists]), layer)
    firsts = list(kinds.values())[:_MAX_LAYERS]
    others = [layer for layer in range(num_layers) if layer not in firsts]
    return sorted(firsts + others[: max(_MIN_LAYERS - len(firsts), 0)])


def _shrink_value(name: str, value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return {"model_type": value.model_type, **shrink(value)}
    if isinstance(value, Mapping):
        return {key: _shrink_value(key, inner) for key, inner in value.items()}
    return _shrink_number(name, value) if _is_number(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shrink_number(name: str, value: int) -> int:
    if name == "vocab_size":
        return VOCAB_SIZE  # also where the default is smaller: the tokenizer needs them
    if name.endswith(("_id", "_index", "_idx")):
        return _shrink_token_id(value)
    size = next((size for pattern, size in _SIZES if re.fullmatch(pattern, name)), value)
    return min(value, size)


def _shrink_token_id(value: int) -> int:
    """The same id if it is in the vocabulary, otherwise one of the last ones, which are no text."""
    return value if value < VOCAB_SIZE else VOCAB_SIZE - 1 - value % 8


def _choose_heads(fields: Mapping[str, Any]) -> dict[str, int]:
    """As many heads of keys as of queries if the default has, or if keys have a low rank; otherwise fewer."""
    changes = {}
    has_low_rank = "kv_lora_rank" in fields
    kv_heads = "num_key_value_heads"
    if kv_heads in fields and (fields[kv_heads] == fields.get("num_attention_heads") or has_low_rank):
        changes[kv_heads] = NUM_HEADS
    elif fields.get(kv_heads, 0) is None:
        changes[kv_heads] = NUM_KV_HEADS
    if fields.get("head_dim", 0) is None and not has_low_rank:
        changes["head_dim"] = HEAD_DIM
    return changes
