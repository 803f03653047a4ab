"""The model folders to check: tiny models with random weights of families that people complete code with.

Beside them stand families that were wrong once, or that show a reason for which a family is refused. Each has a plain
folder, and variants with other windows, positions and heads.

A table of sizes makes the default configuration of a family small. Windows, chunks and the original length of scaled
RoPE become shorter than the sequences of the check, so that all of them matter. Other tables add what a family's code
asks for, and a layer of each kind that its models have.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

Config = Any  # a transformers configuration, which has no types

Changes = Mapping[str, Any]  # arguments of a configuration; a mapping inside changes a nested configuration

PLAIN = "plain"
MAX_TOKENS = 128  # the longest sequence of a tiny model
_VOCAB_SIZE = 680  # more rows than the tokenizer of `tests.support.toys` has tokens
_END_ID, _START_ID = 0, 4  # in that
_ROPE_TOKENS = 32  # the length after which scaled RoPE differs
_CHUNK_TOKENS = 16
_WINDOW_TOKENS = 8
_HEAD_DIM = 16
_HIDDEN_SIZE = 4 * _HEAD_DIM
_FFN_SIZE = 96

_SIZES: dict[str, int] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), _VOCAB_SIZE),
    **dict.fromkeys(("max_position_embeddings", "max_seq_len", "n_positions", "n_ctx", "context_length"), MAX_TOKENS),
    "original_max_position_embeddings": _ROPE_TOKENS,
    **dict.fromkeys(("attention_chunk_size", "chunk_size", "mamba_chunk_size", "floor_scale"), _CHUNK_TOKENS),
    **dict.fromkeys(("sliding_window", "window_size", "index_topk"), _WINDOW_TOKENS),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "mamba_d_ssm"), _HIDDEN_SIZE),
    **dict.fromkeys(("intermediate_size", "intermediate_size_mlp", "ffn_dim"), _FFN_SIZE),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size"), _FFN_SIZE),
    **dict.fromkeys(("shared_intermediate_size", "shared_expert_intermediate_size"), _FFN_SIZE),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "n_groups", "num_experts_per_tok", "n_group"), 2),
    **dict.fromkeys(("max_window_layers", "first_k_dense_replace", "n_shared_experts", "topk_group"), 1),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads", "conf_num_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "index_n_heads", "mamba_n_heads"), 4),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 4),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "image_size", "patch_size"), 4),
    "num_key_value_heads": 2,
    "qk_rope_head_dim": _HEAD_DIM // 2,
    **dict.fromkeys(("head_dim", "index_head_dim", "linear_key_head_dim", "linear_value_head_dim"), _HEAD_DIM),
    **dict.fromkeys(("v_head_dim", "qk_nope_head_dim", "rotary_dim", "kv_lora_rank", "q_lora_rank"), _HEAD_DIM),
    **dict.fromkeys(("laurel_rank", "mamba_d_state", "mamba_dt_rank", "state_size", "time_step_rank"), _HEAD_DIM),
    **dict.fromkeys(("input_feat_size", "out_hidden_size", "projector_input_dim"), _HEAD_DIM),
    **dict.fromkeys(("projector_output_dim", "vision_output_dim"), _HEAD_DIM),
}
_TOKEN_ID_ENDS = ("_token_id", "_token_index")

# `model_type` in config.json, and what people know the family's models by.
FAMILIES: dict[str, str] = {
    "bert": "",
    "bloom": "BLOOM, BLOOMZ",
    "codegen": "CodeGen",
    "cohere": "Command R",
    "cohere2": "Command R7B, Command A",
    "deepseek_v2": "DeepSeek-V2, DeepSeek-Coder-V2, also Lite",
    "deepseek_v3": "DeepSeek-V3, DeepSeek-R1",
    "deepseek_v32": "DeepSeek-V3.2",
    "falcon": "Falcon 7B and 40B",
    "falcon_h1": "Falcon-H1",
    "gemma": "Gemma, CodeGemma",
    "gemma2": "Gemma 2",
    "gemma3_text": "Gemma 3, text only",
    "gemma3n": "Gemma 3n with images and sound",
    "gemma3n_text": "Gemma 3n, text only",
    "gemma4": "Gemma 4",
    "gemma4_text": "",
    "glm": "GLM-4 9B",
    "glm4": "GLM-4-0414",
    "glm4_moe": "GLM-4.5, GLM-4.6",
    "gpt2": "GPT-2, CodeParrot",
    "gpt_bigcode": "StarCoder, SantaCoder",
    "gpt_neo": "GPT-Neo",
    "gpt_neox": "Pythia, GPT-NeoX 20B, PolyCoder",
    "gpt_oss": "gpt-oss 20b and 120b",
    "gptj": "GPT-J",
    "granite": "Granite 3, Granite 4 Micro and 350M under this name",
    "granitemoe": "Granite 3 MoE",
    "granitemoehybrid": "Granite 4, H with state-space layers",
    "iquestcoder": "IQuest-Coder",
    "jamba": "Jamba",
    "lfm2": "LFM2",
    "llama": "Llama 2 and 3, Code Llama, DeepSeek-Coder, Yi-Coder, Seed-Coder",
    "llama4": "Llama 4",
    "llama4_text": "",
    "mamba": "Mamba",
    "mamba2": "Mamba 2, Codestral Mamba",
    "mellum": "Mellum 2",
    "ministral": "",
    "mistral": "Mistral 7B, Codestral, Devstral",
    "mixtral": "Mixtral",
    "mpt": "MPT",
    "nemotron": "Nemotron-4, Minitron",
    "olmo": "OLMo",
    "olmo2": "OLMo 2",
    "olmo3": "OLMo 3",
    "olmoe": "OLMoE",
    "openai-gpt": "",
    "opt": "OPT",
    "phi": "Phi-1, Phi-1.5, Phi-2",
    "phi3": "Phi-3, Phi-3.5, Phi-4",
    "phimoe": "Phi-3.5-MoE",
    "plbart": "PLBART",
    "qwen2": "Qwen2.5-Coder, Qwen2.5, CodeQwen1.5",
    "qwen2_moe": "Qwen1.5-MoE",
    "qwen3": "Qwen3",
    "qwen3_5": "Qwen3.5",
    "qwen3_moe": "Qwen3-Coder-30B-A3B, Qwen3 MoE",
    "qwen3_next": "Qwen3-Next",
    "roberta": "",
    "rwkv": "RWKV-4",
    "seed_oss": "Seed-OSS",
    "smollm3": "SmolLM3",
    "stablelm": "StableLM 2, Stable Code 3B",
    "starcoder2": "StarCoder2",
}

_MIXED: Changes = {"layer_types": ["full_attention", "sliding_attention"]}
_WINDOW_FIRST: Changes = {"layer_types": ["sliding_attention", "full_attention"]}
_LINEAR_FIRST: Changes = {"layer_types": ["linear_attention", "full_attention"]}
_ATTENTION_ONLY: Changes = {"layer_types": ["full_attention"] * 2, "position_embedding_type": "rope"}
_LATENT: Changes = {"num_key_value_heads": 4, "head_dim": _HEAD_DIM // 2}  # the width of the part with positions
_LLAMA4: Changes = {
    "num_hidden_layers": 4,
    "layer_types": ["chunked_attention"] * 3 + ["full_attention"],
    "no_rope_layers": [1, 1, 1, 0],
}
_GEMMA3N: Changes = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0],
    "intermediate_size": [96] * 4,
}
_GEMMA4: Changes = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "head_dim": _HEAD_DIM,
    "global_head_dim": 2 * _HEAD_DIM,
    "num_global_key_value_heads": 1,
}
_PLAIN_CHANGES: dict[str, Changes] = {
    "cohere2": _WINDOW_FIRST,
    "deepseek_v2": {**_LATENT, "num_experts_per_tok": 2},
    "deepseek_v3": _LATENT,
    "deepseek_v32": _LATENT,
    "gemma3_text": _WINDOW_FIRST,
    "gemma3n": {"text_config": _GEMMA3N},
    "gemma3n_text": _GEMMA3N,
    "gemma4": {"text_config": _GEMMA4},
    "gemma4_text": _GEMMA4,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gpt_oss": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150_000.0,
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": _ROPE_TOKENS,
        }
    },
    "granitemoehybrid": {"layer_types": ["linear_attention"] * 2},
    "lfm2": {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
    "llama4": {"text_config": _LLAMA4},
    "llama4_text": _LLAMA4,
    "mamba2": {"num_heads": 8},
    "mellum": _MIXED,
    "ministral": {**_MIXED, "head_dim": _HEAD_DIM},
    "mixtral": {"head_dim": _HEAD_DIM},
    "nemotron": {"num_key_value_heads": 2},
    "olmo3": _WINDOW_FIRST,
    "qwen3_5": {"text_config": _LINEAR_FIRST},
    "qwen3_next": _LINEAR_FIRST,
    "roberta": {"max_position_embeddings": MAX_TOKENS + 2, "pad_token_id": 1},  # positions start after this id
    "smollm3": {"no_rope_layers": [1, 0], "layer_types": ["full_attention"] * 2},
}

_NOT_BUILT_HERE = ("gemma3n",)  # its part for images needs a package that is not installed

_FACTOR = 4.0
_ROPES: dict[str, Changes] = {
    "linear": {"factor": _FACTOR},
    "dynamic": {"factor": _FACTOR},
    "yarn": {"factor": _FACTOR, "original_max_position_embeddings": _ROPE_TOKENS},
    "llama3": {
        "factor": _FACTOR,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": _ROPE_TOKENS,
    },
    "longrope": {"factor": _FACTOR, "original_max_position_embeddings": _ROPE_TOKENS},
}

# The classes whose weights users have, where the causal decoder is a part of the model.
_WHOLE_CLASSES = {**MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, **MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}

_SCALED_YARN: Changes = {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": _FACTOR,
        "original_max_position_embeddings": _ROPE_TOKENS,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
    }
}

# Settings of single families that change what attention computes.
_VARIANTS: dict[str, dict[str, Changes]] = {
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
    "granitemoehybrid": {
        "attention only": {**_ATTENTION_ONLY, "num_local_experts": 0},
        "attention only, without positions": {**_ATTENTION_ONLY, "position_embedding_type": "nope"},
    },
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


def build_changes(family: str) -> dict[str, Any]:
    """The arguments that make the family's tiny configuration."""
    default = CONFIG_MAPPING[family]()
    ids: dict[str, Any] = {"bos_token_id": _START_ID, "eos_token_id": _END_ID}
    if hasattr(default, "is_decoder"):
        ids["is_decoder"] = True
    return _merge(_shrink(default) | ids, _PLAIN_CHANGES.get(family, {}))


def _shrink(config: Config) -> dict[str, Any]:
    """The arguments that make a small configuration of the same class."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value: Any = vars(config).get(config.attribute_map.get(field.name, field.name))
        if hasattr(value, "to_dict"):
            changes[field.name] = {"model_type": value.model_type, **_shrink(value)}
        elif isinstance(value, int) and field.name.endswith(_TOKEN_ID_ENDS):
            changes[field.name] = min(value, _VOCAB_SIZE - 1)  # the tokenizer has no token of this id
        elif isinstance(value, int) and field.name in _SIZES:
            changes[field.name] = min(value, _SIZES[field.name])
    return changes


def _merge(changes: Changes, more: Changes) -> dict[str, Any]:
    """`changes` with `more`, also inside nested configurations."""
    merged = dict(changes)
    for name, value in more.items():
        inner = merged.get(name)
        merged[name] = _merge(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def build_config(family: str, changes: Changes) -> Config:
    """The configuration with these arguments. Raises whatever transformers raises if it is not valid."""
    return CONFIG_MAPPING[family](**changes)


def list_tiny_models(family: str) -> list[TinyModel]:
    """The family's plain model first, then its variants."""
    changes = build_changes(family)
    if family in _NOT_BUILT_HERE:
        return [TinyModel(family, PLAIN, build_config(family, changes).to_dict(), is_built=False)]
    models = [TinyModel(family, PLAIN, changes)]
    for variant, more in _VARIANTS.get(family, {}).items():
        models.append(TinyModel(family, variant, _merge(changes, more)))
    whole = _WHOLE_CLASSES.get(family)
    if whole not in (None, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family]):
        more = {"is_decoder": False} if "is_decoder" in changes else {}
        models.append(TinyModel(family, "whole model", _merge(changes, more), whole, may_be_impossible=True))
    config = build_config(family, changes)
    for variant, more in _iter_variants(config.get_text_config(decoder=True)):
        nested: Changes = {"text_config": more} if "text_config" in changes else more
        models.append(TinyModel(family, variant, _merge(changes, nested), may_be_impossible=True))
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
        yield "wide heads", {"head_dim": _HEAD_DIM + _HEAD_DIM // 2}
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
        changes = {"sliding_window": None if has_window else _WINDOW_TOKENS}
    elif has_window:
        changes = {"layer_types": ["full_attention"] * len(layer_types)}
    else:
        kinds = ("full_attention", "sliding_attention")
        mixed = [kinds[layer % 2] for layer in range(len(layer_types))]
        changes = {"layer_types": mixed, "sliding_window": _WINDOW_TOKENS}
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
            changes["max_position_embeddings"] = _ROPE_TOKENS
        yield f"{kind} RoPE", changes


def _count_frequencies(fields: Mapping[str, Any], rope: Mapping[str, Any]) -> int:
    head_dim = fields.get("qk_rope_head_dim") or fields.get("head_dim") or _HEAD_DIM
    return int(head_dim * rope.get("partial_rotary_factor", 1.0)) // 2
