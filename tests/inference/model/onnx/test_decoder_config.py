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
_QWEN2 = _LLAMA | {"model_type": "qwen2", "num_key_value_heads": 2}


def _linear(**more: Any) -> dict[str, Any]:
    return {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0} | more


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "mixtral"}, "its family is 'mixtral', and only llama, mistral, qwen2"),
        ({"model_type": None}, "its family is None"),
        ({"model_type": ["llama"]}, r"its family is \['llama'\]"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architecture .*LlamaForSequenceClassification"),
        ({"architectures": ["LlamaModel"]}, "architecture .*LlamaModel"),
        ({"auto_map": {"AutoModel": "x.Y"}}, "the field 'auto_map', which is not known"),
        ({"residual_multiplier": 2.0}, "the field 'residual_multiplier', which is not known"),
        ({"logits_scaling": 8.0}, "the field 'logits_scaling', which is not known"),
        ({"attn_logit_softcapping": 2.0}, "the field 'attn_logit_softcapping', which is not known"),
        ({"original_max_position_embeddings": 16}, "the field 'original_max_position_embeddings'"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config = .*awq"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder = True"),
        ({"vocab_size": ...}, "vocab_size in its config.json must be a positive whole number, not None"),
        ({"hidden_size": "64"}, "hidden_size in its config.json must be a positive whole number, not '64'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers .* not 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers .* not True"),
        ({"num_key_value_heads": 3}, "num_attention_heads is not a multiple of num_key_value_heads"),
        ({"hidden_size": 66}, "hidden_size is not a multiple of num_attention_heads"),
        ({"head_dim": 24}, "heads have 24 numbers, which is not a multiple of 16"),
        ({"max_position_embeddings": -1}, "max_position_embeddings"),
        ({"rms_norm_eps": None}, "rms_norm_eps .* not None"),
        ({"rms_norm_eps": 2.0}, "rms_norm_eps .* not 2.0"),
        ({"attention_bias": "yes"}, "attention_bias .* must be true or false, not 'yes'"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings .* must be true or false, not 1"),
        ({"sliding_window": 32}, "sliding_window"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "positions are of the type 'dynamic'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "positions are of the type 'yarn'"),
        ({"rope_parameters": {"rope_type": ["linear"]}}, r"positions are of the type \['linear'\]"),
        ({"rope_parameters": _linear(factor=0)}, "setting factor .* must be a positive number, not 0"),
        ({"rope_parameters": _linear(factor=float("inf"))}, "setting factor"),
        ({"rope_parameters": _linear(attention_factor=2.0)}, "the setting 'attention_factor', which is not known"),
        ({"rope_parameters": _linear(partial_rotary_factor=0.5)}, "the setting 'partial_rotary_factor'"),
        ({"rope_parameters": _linear(), "rope_scaling": _linear()}, "both rope_parameters and rope_scaling"),
        ({"rope_parameters": {"full_attention": _linear()}}, "the setting 'full_attention'"),
        ({"rope_parameters": [1]}, "is not a table"),
        ({"rope_theta": "big"}, "setting rope_theta"),
        ({"rope_parameters": LLAMA3_ROPE | {"low_freq_factor": 4.0}}, "low_freq_factor"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "setting low_freq_factor .* not None"),
    ],
)
def test_what_changes_the_computation_and_is_not_computed_is_refused_by_name(
    changes: dict[str, Any], reason: str
) -> None:
    content = {name: value for name, value in (_LLAMA | changes).items() if value is not ...}
    assert find_obstacle(_LLAMA) is None
    with pytest.raises(ModelError, match=reason):
        read_decoder_config(content)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_key_value_heads": ...}, "does not say num_key_value_heads"),  # transformers takes 32
        ({"attention_bias": False}, "has attention_bias, which its family does not have"),
        ({"use_sliding_window": True, "sliding_window": 8}, "use_sliding_window"),
        ({"architectures": ["LlamaForCausalLM"]}, "architecture .*LlamaForCausalLM"),
    ],
)
def test_what_differs_in_qwen2_is_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    content = {name: value for name, value in (_QWEN2 | changes).items() if value is not ...}
    assert find_obstacle(_QWEN2 | {"sliding_window": 8, "use_sliding_window": False}) is None
    with pytest.raises(ModelError, match=reason):
        read_decoder_config(content)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sliding_window": 4096}, "has a sliding window"),
        ({"sliding_window": ...}, "does not say whether its attention has a sliding window"),  # transformers: 4096
        ({"num_key_value_heads": ...}, "does not say num_key_value_heads"),  # transformers takes 8
        ({"mlp_bias": True}, "has mlp_bias, which its family does not have"),
    ],
)
def test_what_differs_in_mistral_is_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    content = {name: value for name, value in (_MISTRAL | changes).items() if value is not ...}
    assert find_obstacle(_MISTRAL) is None
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
