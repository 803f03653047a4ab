"""The model folders to check: tiny models with random weights of families that people complete code with.

Beside them stand families that were wrong once, or that show a reason for which a family is refused. Each has a plain
folder, and variants with other windows, positions and heads. The general rules of `tiny_config` make most of them. The
tables here add what a family's code asks for, and the kinds of layers that its models have but its default
configuration does not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

from benchmarks.corpora.tiny_config import (
    HEAD_DIM,
    MAX_TOKENS,
    ROPE_TOKENS,
    WINDOW_TOKENS,
    Changes,
    Config,
    merge,
    shrink,
)
from benchmarks.corpora.tiny_folder import END_ID, START_ID

PLAIN = "plain"

# `model_type` in config.json, and what people know the family's models by.
FAMILIES: dict[str, str] = {
    "bert": "",
    "bloom": "BLOOM, BLOOMZ",
    "codegen": "CodeGen",
    "cohere": "Command R",
    "cohere2": "Command R7B, Command A",
    "deepseek_v2": "DeepSeek-V2, DeepSeek-Coder-V2",
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
    "granite": "Granite 3",
    "granitemoe": "Granite 3 MoE",
    "granitemoehybrid": "Granite 4",
    "iquestcoder": "IQuest-Coder",
    "jamba": "Jamba",
    "lfm2": "LFM2",
    "llama": "Llama 2 and 3, Code Llama, DeepSeek-Coder, Yi-Coder, Seed-Coder",
    "llama4": "Llama 4",
    "llama4_text": "",
    "mamba": "Mamba",
    "mamba2": "Mamba 2, Codestral Mamba",
    "mellum": "",
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
    "qwen3_moe": "Qwen3-Coder, Qwen3 MoE",
    "qwen3_next": "Qwen3-Next",
    "roberta": "",
    "rwkv": "RWKV-4",
    "seed_oss": "Seed-OSS",
    "smollm3": "SmolLM3",
    "stablelm": "StableLM 2, Stable Code 3B",
    "starcoder2": "StarCoder2",
}

_MIXED: Changes = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": WINDOW_TOKENS}
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
    "head_dim": HEAD_DIM,
    "global_head_dim": 2 * HEAD_DIM,
    "num_global_key_value_heads": 1,
}
_PLAIN_CHANGES: dict[str, Changes] = {
    "deepseek_v2": {"num_experts_per_tok": 2},
    "gemma3n": {"text_config": _GEMMA3N},
    "gemma3n_text": _GEMMA3N,
    "gemma4": {"text_config": _GEMMA4},
    "gemma4_text": _GEMMA4,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "lfm2": {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8},
    "mellum": _MIXED,
    "ministral": _MIXED,
    "roberta": {"max_position_embeddings": MAX_TOKENS + 2, "pad_token_id": 1},  # positions start after this id
}

_NOT_BUILT_HERE = ("gemma3n",)  # its part for images needs a package that is not installed

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
    ids: dict[str, Any] = {"bos_token_id": START_ID, "eos_token_id": END_ID}
    if hasattr(default, "is_decoder"):
        ids["is_decoder"] = True
    return merge(merge(shrink(default), ids), _PLAIN_CHANGES.get(family, {}))


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
