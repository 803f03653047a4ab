"""Configurations of model families of transformers, for models with tiny random weights."""

from typing import Any

import torch
import transformers

_SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
KV: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 8}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
LAYER_TYPES = {"layer_types": ["sliding_attention", "full_attention"]}

# family -> what its configuration adds, and the layer type or setting that the refusal names
REFUSED_BY_CONFIG: dict[str, tuple[dict[str, Any], str]] = {
    "mamba": ({}, "linear_attention"),
    "jamba": ({**KV, **EXPERTS, "attn_layer_period": 2, "attn_layer_offset": 1}, "linear_attention"),
    "qwen3_next": ({**KV, **EXPERTS, "layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
    "lfm2": ({**KV, "layer_types": ["conv", "full_attention"]}, "conv"),
    "recurrent_gemma": ({"num_key_value_heads": 1, "lru_width": 32, "head_dim": 8}, "linear_attention"),
    "falcon_h1": ({**KV, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16}, "hybrid"),
}


def build_config(family: str, changes: dict[str, Any]) -> Any:  # transformers has no types
    """The configuration of a tiny model."""
    return transformers.AutoConfig.for_model(family, **_SHAPE | changes)


def build_model(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    """A model with random weights, also for norms and sinks, so that no zero or one hides a difference."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.to(dtype).eval()
