"""The causal decoder families that transformers knows, each as the configuration of a tiny model.

The general rules of `tiny_config` make most of them. The table here adds what a family's code asks for, and the kinds
of layers that its models have but its default configuration does not.
"""

from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from benchmarks.corpora.families.tiny_config import (
    CHUNK_TOKENS,
    HEAD_DIM,
    MAX_TOKENS,
    WINDOW_TOKENS,
    Changes,
    Config,
    merge,
    shrink,
)
from benchmarks.corpora.families.tiny_folder import END_ID, START_ID

_MIXED: Changes = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": WINDOW_TOKENS}
_MROPE = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 2, 2]}

# Positions start after the id of the padding token, 1.
_SHIFTED: Changes = {"max_position_embeddings": MAX_TOKENS + 2, "pad_token_id": 1}

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
_GEMMA4_ASSISTANT: Changes = {
    **_GEMMA4,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "num_kv_shared_layers": 4,
}
_DOTS3: Changes = {
    "n_group": 1,
    "head_dim": 24,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 4,
    "swa_q_lora_rank": 16,
    "swa_kv_lora_rank": 16,
    "swa_head_dim": 24,
    "swa_qk_nope_head_dim": 16,
    "swa_v_head_dim": 16,
}
_QWEN4: Changes = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": HEAD_DIM,
    "indexer_budget": WINDOW_TOKENS,
    "indexer_compress_ratio": 4,
}

_SPECIAL: dict[str, Changes] = {
    "xlm-roberta-xl": _SHIFTED,
    "xlm-roberta": _SHIFTED,
    "roberta-prelayernorm": _SHIFTED,
    "roberta": _SHIFTED,
    "data2vec-text": _SHIFTED,
    "camembert": _SHIFTED,
    "cohere_compass_text": {"rope_parameters": {"full_attention": _MROPE, "sliding_attention": _MROPE}},
    "dbrx": {
        "attn_config": {"rope_theta": 10_000.0, "kv_n_heads": 2, "clip_qkv": 8.0},
        "ffn_config": {"hidden_size": 64, "moe_top_k": 2},
    },
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, **_MIXED},
    "dots3_note": {"text_config": _DOTS3},
    "dots3_note_text": _DOTS3,
    "gemma3n": {"text_config": _GEMMA3N},
    "gemma3n_text": _GEMMA3N,
    "gemma4": {"text_config": _GEMMA4},
    "gemma4_assistant": {"text_config": _GEMMA4_ASSISTANT},
    "gemma4_text": _GEMMA4,
    "gemma4_unified": {"text_config": _GEMMA4},
    "gemma4_unified_assistant": {"text_config": _GEMMA4_ASSISTANT},
    "gemma4_unified_text": _GEMMA4,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "laguna": _MIXED,
    "lfm2": {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
    "longcat_flash": {"head_dim": HEAD_DIM // 2},
    "mamba2": {"num_heads": 8},
    "mellum": _MIXED,
    "ministral": _MIXED,
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"]},
    "qwen4_exp": {"text_config": _QWEN4},
    "qwen4_exp_text": _QWEN4,
    "reformer": {
        "num_hidden_layers": 2,
        "attn_layers": ["local", "lsh"],
        "axial_pos_shape": [8, CHUNK_TOKENS],
        "axial_pos_embds_dim": [32, 32],
    },
    "xlstm": {"num_heads": 4, "hidden_size": 128, "embedding_dim": 128},
    "xmod": {"default_language": "en_XX", **_SHIFTED},
    "zamba": {"num_hidden_layers": 3, "layers_block_type": ["linear_attention", "hybrid", "hybrid"]},
}

# transformers cannot build a causal decoder of these: a draft model without its target, models of sound, and one whose
# part for images needs a package that is not installed.
NOT_BUILT_HERE = ("gemma3n", "gemma4_assistant", "gemma4_unified_assistant", "musicgen", "musicgen_melody")


def list_families() -> list[str]:
    """All families of causal decoders, as `model_type` in config.json names them."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def build_changes(family: str) -> dict[str, Any]:
    """The arguments that make the family's tiny configuration."""
    special = _SPECIAL.get(family, {})
    default = _build_default(family, special)
    ids: dict[str, Any] = {"bos_token_id": START_ID, "eos_token_id": END_ID}
    if hasattr(default, "is_decoder"):
        ids["is_decoder"] = True
    return merge(merge(shrink(default), ids), special)


def build_config(family: str, changes: Changes) -> Config:
    """The configuration with these arguments. Raises whatever transformers raises if it is not valid."""
    return CONFIG_MAPPING[family](**changes)


def _build_default(family: str, special: Changes) -> Config:
    if family.endswith("_assistant"):  # whose own defaults contradict each other
        return CONFIG_MAPPING[family](**special)
    return CONFIG_MAPPING[family]()
