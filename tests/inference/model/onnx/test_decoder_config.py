import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from inference.errors import ModelError
from inference.model.onnx.decoder_config import read_decoder_config
from tests.support.decoder_folders import (
    LLAMA3_ROPE,
    LONG_ROPE,
    SERVED,
    YARN_ROPE,
    DecoderOracle,
    build_content,
    write_decoder,
)

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
_LONG_ROPE = LONG_ROPE | {"short_factor": [1 + i / 8 for i in range(32)], "long_factor": [1.0] * 32}
_GRANITE = _LLAMA | {"model_type": "granite"}
_STABLELM = (
    _LLAMA
    | {"model_type": "stablelm", "num_key_value_heads": 2, "layer_norm_eps": 1e-5}
    | {"partial_rotary_factor": 0.5}
)
_SMOLLM3 = _LLAMA | {"model_type": "smollm3"}
_GEMMA = _LLAMA | {"model_type": "gemma", "num_key_value_heads": 2, "head_dim": 32}


def _linear(**more: Any) -> dict[str, Any]:
    return {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0} | more


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        (_LLAMA, {"model_type": "mixtral"}, "its family is 'mixtral', and only llama, mistral, qwen2, "),
        (_LLAMA, {"model_type": None}, "its family is None"),
        (_LLAMA, {"model_type": ["llama"]}, r"its family is \['llama'\]"),
        (
            _LLAMA,
            {"architectures": ["LlamaForSequenceClassification"]},
            "architecture .*LlamaForSequenceClassification",
        ),
        (_LLAMA, {"architectures": ["LlamaModel"]}, "architecture .*LlamaModel"),
        (_LLAMA, {"auto_map": {"AutoModelForCausalLM": "x.Y"}}, "architecture None, and not LlamaForCausalLM"),
        (_LLAMA, {"hidden_act": "relu"}, "hidden_act .* must be one of silu, .*, not 'relu'"),
        (_LLAMA, {"hidden_act": ["silu"]}, "hidden_act .*silu"),
        (_LLAMA, {"is_causal": False}, "is_causal = False"),
        (_LLAMA, {"text_config": {"model_type": "gemma"}}, "text_config = .*gemma"),
        (_LLAMA, {"per_layer_config": {"0": {"num_attention_heads": 2}}}, "per_layer_config"),
        (
            _LLAMA,
            {"layer_types": ["sliding_attention"] * 2},
            "layer_types .* must be full_attention for each layer to run",
        ),
        (_LLAMA, {"layer_types": ["full_attention"]}, "layer_types"),
        (_LLAMA, {"rope_parameters": _linear(partial_rotary_factor=0.5)}, "partial_rotary_factor = 0.5"),
        (_LLAMA, {"rope_parameters": {"rope_type": "mrope"}}, "positions are of the type 'mrope'"),
        (_LLAMA, {"rope_parameters": {"rope_type": "yarn"}}, "factor .* not None"),
        (_LLAMA, {"rope_parameters": YARN_ROPE | {"rope_theta": 1}}, "rope_theta .* greater than 1, not 1"),
        (_LLAMA, {"rope_parameters": YARN_ROPE | {"beta_fast": -1}}, "beta_fast"),
        (_LLAMA, {"rope_parameters": LONG_ROPE | {"short_factor": [1.0]}}, "short_factor .* a list of 8 numbers"),
        (_LLAMA, {"rope_parameters": LONG_ROPE | {"short_factor": [0.0] * 8}}, "short_factor .* greater than 0, not 0"),
        (_GRANITE, {"logits_scaling": 0}, "logits_scaling .* must be a positive number, not 0"),
        (_GRANITE, {"attention_multiplier": "x"}, "attention_multiplier"),
        (_STABLELM, {"use_parallel_residual": True}, "use_parallel_residual = True"),
        (_STABLELM, {"qk_layernorm": True}, "qk_layernorm = True"),
        (_STABLELM, {"partial_rotary_factor": 0.2}, "partial_rotary_factor = 0.2"),
        (_SMOLLM3, {"no_rope_layers": [1]}, "no_rope_layers"),
        (_SMOLLM3, {"no_rope_layers": [1, 2]}, "no_rope_layers"),
        (_GEMMA, {"use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
        (_MISTRAL, {"sliding_window": 32}, "sliding_window .* must be 1,024 or more .* not 32"),
        (_LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        (_LLAMA, {"is_encoder_decoder": True}, "is_encoder_decoder = True"),
        (_LLAMA, {"vocab_size": ...}, "vocab_size in its config.json must be a positive whole number, not None"),
        (_LLAMA, {"hidden_size": "64"}, "hidden_size in its config.json must be a positive whole number, not '64'"),
        (_LLAMA, {"num_hidden_layers": 0}, "num_hidden_layers .* not 0"),
        (_LLAMA, {"num_hidden_layers": True}, "num_hidden_layers .* not True"),
        (_LLAMA, {"num_key_value_heads": 3}, "num_key_value_heads .* must be a divisor of num_attention_heads, not 3"),
        (_LLAMA, {"hidden_size": 66}, "head_dim .* must be a multiple of 16 .* not None"),
        (_LLAMA, {"head_dim": 24}, "head_dim .* must be a multiple of 16 .* not 24"),
        (_LLAMA, {"max_position_embeddings": -1}, "max_position_embeddings"),
        (_LLAMA, {"rms_norm_eps": None}, "rms_norm_eps .* not None"),
        (_LLAMA, {"rms_norm_eps": 2.0}, "rms_norm_eps .* not 2.0"),
        (_LLAMA, {"attention_bias": "yes"}, "attention_bias .* must be true or false, not 'yes'"),
        (_LLAMA, {"tie_word_embeddings": 1}, "tie_word_embeddings .* must be true or false, not 1"),
        (_LLAMA, {"sliding_window": 32}, "sliding_window"),
        (_LLAMA, {"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        (_LLAMA, {"rope_parameters": {"rope_type": ["linear"]}}, r"positions are of the type \['linear'\]"),
        (_LLAMA, {"rope_parameters": _linear(factor=0)}, "factor .* must be a number greater than 0, not 0"),
        (_LLAMA, {"rope_parameters": _linear(factor=float("inf"))}, "factor .* not inf"),
        (_LLAMA, {"rope_parameters": _linear(), "rope_scaling": _linear()}, "both rope_parameters and rope_scaling"),
        (_LLAMA, {"rope_parameters": {"full_attention": _linear()}}, "settings of their own for 'full_attention'"),
        (_LLAMA, {"rope_parameters": [1]}, "is not a table"),
        (_LLAMA, {"rope_theta": "big"}, "rope_theta"),
        (_LLAMA, {"rope_parameters": LLAMA3_ROPE | {"low_freq_factor": 4.0}}, "low_freq_factor"),
        (_LLAMA, {"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor .* not None"),
        (_QWEN2, {"use_sliding_window": True, "sliding_window": 8}, "sliding_window .* not 8"),
        (_QWEN2, {"architectures": ["LlamaForCausalLM"]}, "architecture .*LlamaForCausalLM"),
    ],
)
def test_what_changes_the_computation_and_is_not_computed_is_refused_by_name(
    family: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    content = {name: value for name, value in (family | changes).items() if value is not ...}
    read_decoder_config(family)
    with pytest.raises(ModelError, match=reason):
        read_decoder_config(content)


_FAMILIES = sorted({family for family, _ in SERVED.values()})
_ODD_VALUES = (False, True, 3, 0.5, "odd", [1], {"odd": 1})
# Fields that transformers reads, and that change nothing in a forward pass.
_CHANGING_NOTHING = {
    # of training
    *("attention_dropout", "embedding_dropout", "hidden_dropout", "residual_dropout", "resid_pdrop", "embd_pdrop"),
    *("initializer_range", "init_std", "initializer_factor", "gradient_checkpointing"),
    # of tokens, and of what is returned
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id"),
    *("output_attentions", "output_hidden_states", "return_dict", "tie_last_hidden_states", "use_cache"),
    # of loading; the last two name code that is not run, and kinds of code for the same
    *("dtype", "fusion_config", "distributed_config", "name_or_path", "transformers_version"),
    *("auto_map", "attn_implementation"),
    # checked: by `inference.model_folder`, against others, or for errors
    *("quantization_config", "num_heads", "mlp_layer_types", "mtp_layer_types", "pretraining_tp"),
    # of other models, and one of windows: here, a sequence ends where the window of any layer would hide tokens
    *("vision_aspect_ratio", "vision_feature_layer", "vision_feature_select_strategy", "max_window_layers"),
}
_NEEDED = {
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "rms_norm_eps", "norm_epsilon", "layer_norm_eps"),
}


@pytest.mark.parametrize("family", _FAMILIES)
def test_what_transformers_reads_of_a_configuration_is_read_here_or_refused(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = next(changes for name, changes in SERVED.values() if name == family)
    content = json.loads((write_decoder(tmp_path, family, **changes) / "config.json").read_text())
    found = {*_find_reads(family), *_record_reads(tmp_path, monkeypatch)}
    named = {name for name in found if not name.startswith("_") and name not in dir(transformers.PreTrainedConfig)}
    assert {"hidden_size", "hidden_act", "tie_word_embeddings"} <= named
    bare = {name: content[name] for name in content.keys() & _NEEDED}
    contents = [content, bare, bare | {"use_sliding_window": True}, bare | {"rope_scaling": LONG_ROPE}]
    ignored = [name for name in named - _CHANGING_NOTHING if not any(_matters(each, name) for each in contents)]
    assert ignored == []


def _find_reads(family: str) -> Iterator[str]:
    """The fields of configurations that the family's code names."""
    code = Path(transformers.__file__).parent / "models" / family / f"modeling_{family}.py"
    for node in ast.walk(ast.parse(code.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name), attr=field):
                pass
            case ast.Call(args=[ast.Name(id=name) | ast.Attribute(attr=name), ast.Constant(value=str(field)), *_]):
                pass
            case _:
                continue
        if name.endswith("config"):
            yield field


def _record_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The fields that are asked for while a model is loaded and run, also those that it has not."""
    names: set[str] = set()
    read = transformers.PreTrainedConfig.__getattribute__

    def record(config: object, name: str) -> object:
        names.add(name)
        return read(config, name)

    with monkeypatch.context() as patch:
        patch.setattr(transformers.PreTrainedConfig, "__getattribute__", record)
        DecoderOracle(folder).forward([1, 2, 3])
    return names


def _matters(content: Mapping[str, Any], name: str) -> bool:
    """True if some value of the field makes another decoder, or another reason to refuse it."""
    return any(_describe({**content, name: value}) != _describe(content) for value in _ODD_VALUES)


def _describe(content: Mapping[str, Any]) -> str:
    """All that is computed, or the reason why it is not."""
    try:
        return repr(read_decoder_config(content))
    except ModelError as error:
        return str(error)


# Fields of published folders that nothing reads.
_PUBLISHED: dict[str, dict[str, Any]] = {
    "llama": {  # SmolLM2, Seed-Coder, DeepSeek-Coder, Yi-Coder, aiXcoder and others
        "is_llama_config": True,
        "rope_interleaved": False,
        "residual_dropout": 0.1,
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
        "unsloth_version": "2024.9",
        "pretraining_tp": 2,
        "mlp_dropout": 0.5,
        "logits_scaling": 8.0,
        "head_dtype": "float32",
        "auto_map": {"AutoModelForCausalLM": "modeling.Model"},
    },
    "qwen2": {  # CodeQwen1.5, Zeta
        "rotary_emb_base": 1_000_000,
        "seq_length": 65_536,
        "unsloth_fixed": True,
        "use_mrope": False,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "starcoder2": {"mlp_type": "default", "norm_type": "layer_norm", "scale_attn_weights": True},
    "granite": {"num_local_experts": 4},
    "gemma": {"hidden_activation": "silu"},
    "phi3": {"embd_pdrop": 0.1, "original_max_position_embeddings": 64},
    "mistral": {"attention_bias": True, "spda": 1},
}


@pytest.mark.parametrize("family", _PUBLISHED)
def test_fields_that_nothing_reads_change_nothing(family: str, tmp_path: Path) -> None:
    changes = next(changes for name, changes in SERVED.values() if name == family)
    content = json.loads((write_decoder(tmp_path, family, **changes) / "config.json").read_text())
    expected = DecoderOracle(tmp_path).forward([1, 2, 3])

    (tmp_path / "config.json").write_text(json.dumps(content | _PUBLISHED[family]))

    np.testing.assert_array_equal(DecoderOracle(tmp_path).forward([1, 2, 3]), expected)
    assert repr(read_decoder_config(content | _PUBLISHED[family])) == repr(read_decoder_config(content))


@pytest.mark.parametrize("family", _FAMILIES)
def test_what_a_file_does_not_say_is_what_transformers_assumes(family: str) -> None:
    content = build_content(family, hidden_size=4096, num_attention_heads=32, num_key_value_heads=...)
    short = {name: content[name] for name in content.keys() & _NEEDED - {"num_key_value_heads"}}
    whole = transformers.AutoConfig.for_model(**short).to_dict()
    assert repr(read_decoder_config(short)) == repr(read_decoder_config(whole))


@pytest.mark.parametrize(
    ("family", "changes", "expected"),
    [
        (_LLAMA, {"max_position_embeddings": 4096}, 4096),
        (_MISTRAL, {"sliding_window": 2048}, 2048),
        (_MISTRAL, {"sliding_window": ...}, 4096),
        (_QWEN2, {"use_sliding_window": True, "sliding_window": 1024}, 1024),
        (_QWEN2, {"use_sliding_window": False, "sliding_window": 8}, 32_768),
        (_LLAMA, {"rope_parameters": LONG_ROPE, "max_position_embeddings": 4096}, 64),
    ],
)
def test_a_sequence_ends_where_a_window_would_hide_tokens_or_frequencies_would_change(
    family: dict[str, Any], changes: dict[str, Any], expected: int
) -> None:
    content = {name: value for name, value in (family | changes).items() if value is not ...}
    assert read_decoder_config(content).max_tokens == expected


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
        {"rope_parameters": YARN_ROPE},
        {"rope_parameters": YARN_ROPE | {"attention_factor": 1.5, "beta_fast": None}},
        {"rope_parameters": YARN_ROPE | {"mscale": 0.7, "mscale_all_dim": 0.3}},
        {"rope_parameters": YARN_ROPE | {"truncate": False, "factor": 1.0, "rope_theta": 1_000_000.0}},
        {"rope_parameters": YARN_ROPE, "original_max_position_embeddings": 300},
        {"rope_scaling": {"type": "yarn", "factor": 4.0}, "rope_theta": 1000.0},
        {"rope_scaling": {"type": "dynamic", "factor": 4.0}, "rope_theta": 1000.0},
        {"rope_parameters": _LONG_ROPE},
        {"rope_parameters": _LONG_ROPE | {"factor": 2.0}},
        {"rope_parameters": _LONG_ROPE | {"attention_factor": 0.5}},
        {"rope_parameters": {**LLAMA3_ROPE, "rope_type": "default"}},  # transformers does not use the rest either
    ],
    ids=str,
)
def test_angles_are_those_of_transformers(changes: dict[str, Any]) -> None:
    content = _LLAMA | {"head_dim": 64, "max_position_embeddings": 20_000} | changes
    rotary = read_decoder_config(content).rotary
    cosines, sines = rotary.build_tables(rotary.max_tokens)
    positions = torch.arange(rotary.max_tokens)[None]
    theirs = LlamaRotaryEmbedding(transformers.LlamaConfig(**json.loads(json.dumps(content))))
    expected = theirs(torch.zeros(1), positions)
    for ours, table in zip((cosines, sines), expected, strict=True):
        np.testing.assert_allclose(ours, table[0, :, :32].numpy(), atol=20_000 * 4 * 2**-23)  # 4 ulp of the last angle
        np.testing.assert_allclose(ours[:1000], table[0, :1000, :32].numpy(), atol=2e-4)
