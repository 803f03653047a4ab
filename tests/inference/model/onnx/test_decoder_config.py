import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from inference.errors import ModelError
from inference.model.onnx.decoder_config import find_obstacle, read_decoder_config
from tests.support.decoder_folders import LLAMA3_ROPE, SERVED

_DEFAULT_MODEL = Path(__file__).parents[4] / "models/default"
_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-6,
}
_MISTRAL = _LLAMA | {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": None}
_QWEN2 = _LLAMA | {
    "model_type": "qwen2",
    "num_key_value_heads": 2,
    "sliding_window": 8,
    "use_sliding_window": False,
}


def _linear(**more: Any) -> dict[str, Any]:
    return {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0} | more


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        (_LLAMA, {"model_type": "mixtral"}, "its family is 'mixtral', and only llama, mistral, qwen2"),
        (_LLAMA, {"model_type": None}, "its family is None"),
        (_LLAMA, {"model_type": ["llama"]}, r"its family is \['llama'\]"),
        (
            _LLAMA,
            {"architectures": ["LlamaForSequenceClassification"]},
            "architecture .*LlamaForSequenceClassification",
        ),
        (_LLAMA, {"architectures": ["LlamaModel"]}, "architecture .*LlamaModel"),
        (_LLAMA, {"auto_map": {"AutoModel": "x.Y"}}, "the field 'auto_map', which is not known"),
        (_LLAMA, {"residual_multiplier": 2.0}, "the field 'residual_multiplier', which is not known"),
        (_LLAMA, {"logits_scaling": 8.0}, "the field 'logits_scaling', which is not known"),
        (_LLAMA, {"attn_logit_softcapping": 2.0}, "the field 'attn_logit_softcapping', which is not known"),
        (_LLAMA, {"original_max_position_embeddings": 16}, "the field 'original_max_position_embeddings'"),
        (_LLAMA, {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        (_LLAMA, {"quantization_config": {"quant_method": "awq"}}, "quantization_config = .*awq"),
        (_LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        (_LLAMA, {"is_encoder_decoder": True}, "is_encoder_decoder = True"),
        (_LLAMA, {"vocab_size": ...}, "vocab_size in its config.json must be a positive whole number, not None"),
        (_LLAMA, {"hidden_size": "64"}, "hidden_size in its config.json must be a positive whole number, not '64'"),
        (_LLAMA, {"num_hidden_layers": 0}, "num_hidden_layers .* not 0"),
        (_LLAMA, {"num_hidden_layers": True}, "num_hidden_layers .* not True"),
        (_LLAMA, {"num_key_value_heads": 3}, "num_attention_heads is not a multiple of num_key_value_heads"),
        (_LLAMA, {"hidden_size": 66}, "hidden_size is not a multiple of num_attention_heads"),
        (_LLAMA, {"head_dim": 24}, "heads have 24 numbers, which is not a multiple of 16"),
        (_LLAMA, {"max_position_embeddings": -1}, "max_position_embeddings"),
        (_LLAMA, {"rms_norm_eps": None}, "rms_norm_eps .* not None"),
        (_LLAMA, {"rms_norm_eps": 2.0}, "rms_norm_eps .* not 2.0"),
        (_LLAMA, {"attention_bias": "yes"}, "attention_bias .* must be true or false, not 'yes'"),
        (_LLAMA, {"tie_word_embeddings": 1}, "tie_word_embeddings .* must be true or false, not 1"),
        (_LLAMA, {"sliding_window": 32}, "sliding_window"),
        (_LLAMA, {"use_sliding_window": True}, "use_sliding_window"),
        (_LLAMA, {"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        (_LLAMA, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "positions are of the type 'dynamic'"),
        (_LLAMA, {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "positions are of the type 'yarn'"),
        (_LLAMA, {"rope_parameters": {"rope_type": ["linear"]}}, r"positions are of the type \['linear'\]"),
        (_LLAMA, {"rope_parameters": _linear(factor=0)}, "setting factor .* must be a positive number, not 0"),
        (_LLAMA, {"rope_parameters": _linear(factor=float("inf"))}, "setting factor"),
        (
            _LLAMA,
            {"rope_parameters": _linear(attention_factor=2.0)},
            "the setting 'attention_factor', which is not known",
        ),
        (_LLAMA, {"rope_parameters": _linear(partial_rotary_factor=0.5)}, "the setting 'partial_rotary_factor'"),
        (_LLAMA, {"rope_parameters": _linear(), "rope_scaling": _linear()}, "both rope_parameters and rope_scaling"),
        (_LLAMA, {"rope_parameters": {"full_attention": _linear()}}, "the setting 'full_attention'"),
        (_LLAMA, {"rope_parameters": [1]}, "is not a table"),
        (_LLAMA, {"rope_theta": "big"}, "setting rope_theta"),
        (_LLAMA, {"rope_parameters": LLAMA3_ROPE | {"low_freq_factor": 4.0}}, "low_freq_factor"),
        (_LLAMA, {"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "setting low_freq_factor .* not None"),
        (_QWEN2, {"num_key_value_heads": ...}, "does not say num_key_value_heads"),  # transformers takes 32
        (_QWEN2, {"attention_bias": False}, "has attention_bias, which its family does not have"),
        (_QWEN2, {"use_sliding_window": True, "sliding_window": 8}, "use_sliding_window"),
        (_QWEN2, {"architectures": ["LlamaForCausalLM"]}, "architecture .*LlamaForCausalLM"),
        (_MISTRAL, {"sliding_window": 4096}, "has a sliding window"),
        (
            _MISTRAL,
            {"sliding_window": ...},
            "does not say whether its attention has a sliding window",
        ),  # transformers: 4096
        (_MISTRAL, {"num_key_value_heads": ...}, "does not say num_key_value_heads"),  # transformers takes 8
        (_MISTRAL, {"mlp_bias": True}, "has mlp_bias, which its family does not have"),
    ],
)
def test_what_changes_the_computation_and_is_not_computed_is_refused_by_name(
    family: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    content = {name: value for name, value in (family | changes).items() if value is not ...}
    assert find_obstacle(family) is None
    with pytest.raises(ModelError, match=reason):
        read_decoder_config(content)


@pytest.mark.parametrize("name", SERVED)
def test_configurations_that_transformers_writes_are_read(name: str) -> None:
    family, changes = SERVED[name]
    config = transformers.AutoConfig.for_model(**_LLAMA | {"model_type": family, "num_key_value_heads": 2} | changes)
    assert find_obstacle(config.to_dict()) is None


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope_theta": 77.0},
        {"rope_scaling": {"type": "linear", "factor": 3.0}, "rope_theta": 77.0},
        {"rope_parameters": _linear()},
        {"rope_parameters": LLAMA3_ROPE},
        {"rope_parameters": LLAMA3_ROPE | {"factor": 32.0, "original_max_position_embeddings": 8192}},
        {"rope_scaling": {**LLAMA3_ROPE, "rope_theta": 500_000.0}},
        {"rope_parameters": {**LLAMA3_ROPE, "rope_type": "default"}},  # transformers does not use the rest either
    ],
    ids=str,
)
def test_angles_are_those_of_transformers(changes: dict[str, Any]) -> None:
    content = _LLAMA | {"head_dim": 64, "max_position_embeddings": 20_000} | changes
    cosines, sines = read_decoder_config(content).rotary.build_tables(20_000)
    positions = torch.arange(20_000)[None]
    theirs = LlamaRotaryEmbedding(transformers.LlamaConfig(**json.loads(json.dumps(content))))
    expected = theirs(torch.zeros(1), positions)
    for ours, table in zip((cosines, sines), expected, strict=True):
        np.testing.assert_allclose(ours, table[0, :, :32].numpy(), atol=3e-3)  # angles of 20,000 in float32
        np.testing.assert_allclose(ours[:1000], table[0, :1000, :32].numpy(), atol=2e-4)
