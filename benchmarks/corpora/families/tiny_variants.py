"""The model folders to check: a plain one of each family, and variants with other windows, positions and heads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

from benchmarks.corpora.families.tiny_config import HEAD_DIM, ROPE_TOKENS, WINDOW_TOKENS, Changes, Config, merge
from benchmarks.corpora.families.tiny_families import NOT_BUILT_HERE, build_changes, build_config

PLAIN = "plain"

_FACTOR = 4.0
_ROPES: dict[str, Changes] = {
    "linear": {"factor": _FACTOR},
    "dynamic": {"factor": _FACTOR},
    "yarn": {"factor": _FACTOR, "original_max_position_embeddings": ROPE_TOKENS},
    "llama3": {
        "factor": _FACTOR,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": ROPE_TOKENS,
    },
    "longrope": {"factor": _FACTOR, "original_max_position_embeddings": ROPE_TOKENS},
}

# The classes whose weights users have, where the causal decoder is a part of the model.
_WHOLE_CLASSES = {**MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, **MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}

_SCALED_YARN: Changes = {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": _FACTOR,
        "original_max_position_embeddings": ROPE_TOKENS,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
    }
}

# Settings of single families that change what attention computes.
_SPECIAL: dict[str, dict[str, Changes]] = {
    "deepseek_v2": {"without a query rank": {"q_lora_rank": None}, "yarn RoPE with scaled scores": _SCALED_YARN},
    "deepseek_v3": {"without a query rank": {"q_lora_rank": None}, "yarn RoPE with scaled scores": _SCALED_YARN},
    "falcon": {
        "ALiBi": {"alibi": True},
        "new decoder architecture": {"new_decoder_architecture": True, "num_kv_heads": 2},
        "one head of keys each": {"multi_query": False},
    },
    "gemma4_text": {
        "experts": {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 96},
        "keys as values": {"attention_k_eq_v": True},
        "layers that share keys": {"num_kv_shared_layers": 2},
    },
    "gpt2": {"scores scaled by layer": {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}},
    "gpt_bigcode": {"one head of keys each": {"multi_query": False}},
    "llama4_text": {"without temperature tuning": {"attn_temperature_tuning": False}},
    "mpt": {"without ALiBi": {"attn_config": {"alibi": False}}},
    "stablelm": {
        "query and key norms": {"qk_layernorm": True},
        "parallel residual": {"use_parallel_residual": True},
    },
}


@dataclass(frozen=True, slots=True)
class TinyModel:
    """A model folder to check: a family, and the arguments of its configuration."""

    family: str  # as a refusal must name it
    variant: str
    changes: Changes
    class_name: str | None = None  # in transformers; None: the family's causal decoder
    may_be_impossible: bool = False  # a general variant, which not every family's code allows
    is_built: bool = True  # False: transformers cannot build it here, and the folder has a configuration only


def list_tiny_models(family: str) -> list[TinyModel]:
    """The family's plain model first, then its variants."""
    changes = build_changes(family)
    if family in NOT_BUILT_HERE:
        return [TinyModel(family, PLAIN, build_config(family, changes).to_dict(), is_built=False)]
    models = [TinyModel(family, PLAIN, changes)]
    for variant, more in _SPECIAL.get(family, {}).items():
        models.append(TinyModel(family, variant, merge(changes, more)))
    whole = _WHOLE_CLASSES.get(family)
    if whole not in (None, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family]):
        more = {"is_decoder": False} if "is_decoder" in changes else {}
        models.append(TinyModel(family, "whole model", merge(changes, more), whole, may_be_impossible=True))
    config = build_config(family, changes)
    for variant, more in _iter_variants(config.get_text_config(decoder=True)):
        nested: Changes = {"text_config": more} if "text_config" in changes else more
        models.append(TinyModel(family, variant, merge(changes, nested), may_be_impossible=True))
    return models


def list_other_folders() -> list[TinyModel]:
    """Folders that people may try and that have no causal decoder of transformers. Each must be refused."""
    raw: dict[str, Changes] = {name: {"model_type": name} for name in ("t5", "qwen2_vl", "mistral3", "chatglm")}
    raw["replit_lm"] = {"model_type": "replit_lm", "auto_map": {"AutoConfig": "c.C", "AutoModelForCausalLM": "m.M"}}
    raw["model_type"] = {}  # the sentence must say that it is missing
    return [TinyModel(name, PLAIN, changes, is_built=False) for name, changes in raw.items()]


def _iter_variants(config: Config) -> Iterator[tuple[str, Changes]]:
    fields = vars(config)
    yield from _iter_ropes(config.model_type, fields)
    if "sliding_window" in fields:
        yield from _iter_windows(fields)
    if "head_dim" in fields:
        yield "wide heads", {"head_dim": HEAD_DIM + HEAD_DIM // 2}
    if fields.get("is_decoder"):
        yield "encoder", {"is_decoder": False}
    if "attn_logit_softcapping" in fields and fields["attn_logit_softcapping"] is None:
        yield "soft cap", {"attn_logit_softcapping": 2.0}
    if "use_bidirectional_attention" in fields:
        value = "all" if config.model_type.startswith("gemma4") else True
        yield "both directions", {"use_bidirectional_attention": value}


def _iter_windows(fields: Mapping[str, Any]) -> Iterator[tuple[str, Changes]]:
    layer_types = fields.get("layer_types")
    has_window = bool(fields["sliding_window"]) and (layer_types is None or "sliding_attention" in layer_types)
    changes: dict[str, Any]
    if layer_types is None:
        changes = {"sliding_window": None if has_window else WINDOW_TOKENS}
    elif has_window:
        changes = {"layer_types": ["full_attention"] * len(layer_types)}
    else:
        kinds = ("full_attention", "sliding_attention")
        mixed = [kinds[layer % 2] for layer in range(len(layer_types))]
        changes = {"layer_types": mixed, "sliding_window": WINDOW_TOKENS}
    if "use_sliding_window" in fields:
        changes["use_sliding_window"] = not has_window
    yield "without a window" if has_window else "window", changes


def _iter_ropes(family: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, Changes]]:
    """Each kind of scaled RoPE, for the layers with full attention if the kinds of layers differ."""
    parameters = fields.get("rope_parameters")
    if not isinstance(parameters, Mapping):
        return
    inner = parameters.get("full_attention")
    flat = inner if isinstance(inner, Mapping) else parameters
    if "rope_theta" not in flat:
        return
    for kind, scaling in _ROPES.items():
        scaled = {**flat, "rope_type": kind, **scaling}
        if kind == "longrope":
            num_factors = _count_frequencies(fields, flat)
            scaled |= {"short_factor": [1.0] * num_factors, "long_factor": [float(2 + i) for i in range(num_factors)]}
            scaled |= {"short_mscale": 1.0, "long_mscale": 1.1} if family == "phimoe" else {}
        changes: dict[str, Any] = {"rope_parameters": scaled}
        if flat is inner:
            changes["rope_parameters"] = {**parameters, "full_attention": scaled}
        if kind == "dynamic":  # it differs beyond this length
            changes["max_position_embeddings"] = ROPE_TOKENS
        yield f"{kind} RoPE", changes


def _count_frequencies(fields: Mapping[str, Any], rope: Mapping[str, Any]) -> int:
    head_dim = fields.get("qk_rope_head_dim") or fields.get("head_dim") or HEAD_DIM
    return int(head_dim * rope.get("partial_rotary_factor", 1.0)) // 2
