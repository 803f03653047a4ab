"""The configuration of a decoder, read from config.json, or the reason why the decoder cannot be run here.

A field that is not known might change what the model computes. Therefore every field must be in one of the tables
below, or the folder is refused with the field's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inference.errors import ModelError, quote
from inference.model.onnx.rotary import Rotary, find_rotary_obstacle, read_rotary

_CLASSES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"}
# What transformers assumes if the configuration names no limit.
_MAX_TOKENS = {"llama": 2048, "mistral": 131_072, "qwen2": 32_768}

_HEAD_DIM_UNIT = 16  # onnxruntime's attention takes multiples of this only

_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_OPTIONAL_SIZES = ("num_key_value_heads", "head_dim", "max_position_embeddings")
_SWITCHES = ("attention_bias", "mlp_bias", "tie_word_embeddings", "use_sliding_window")
_ROTARY = ("rope_parameters", "rope_scaling", "rope_theta")
_OTHERS = ("model_type", "architectures", "rms_norm_eps", "sliding_window", "max_window_layers", "layer_types")

# Fields with a single value that the graph computes.
_FIXED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "is_decoder": (True, False),  # a decoder of these families sees only the tokens before it in any case
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "partial_rotary_factor": (1, None),
    "chunk_size_feed_forward": (0,),
    "pruned_heads": ({}, None),
    "use_mrope": (False,),
    "quantization_config": (None,),
    "logits_soft_cap": (None,),
}

# Fields that do not change next-token logits.
_IGNORED = frozenset({
    "_name_or_path", "attention_dropout", "bos_token_id", "cross_attention_hidden_size", "decoder_start_token_id",
    "dtype", "eos_token_id", "finetuning_task", "id2label", "initializer_range", "label2id", "output_attentions",
    "output_hidden_states", "pad_token_id", "prefix", "pretraining_tp", "problem_type", "return_dict", "sep_token_id",
    "task_specific_params", "tokenizer_class", "torch_dtype", "transformers_version", "unk_token_id", "use_cache",
})  # fmt: skip

_KNOWN = _IGNORED.union(_SIZES, _OPTIONAL_SIZES, _SWITCHES, _ROTARY, _OTHERS, _FIXED)


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """What a decoder of the kind of Llama computes."""

    vocab_size: int
    hidden_size: int
    ffn_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_epsilon: float
    max_tokens: int  # the most tokens of one sequence
    rotary: Rotary
    has_qkv_bias: bool
    has_output_bias: bool  # of the projection after attention
    has_ffn_bias: bool
    ties_embeddings: bool  # the head uses the embeddings of the tokens

    @property
    def num_heads_per_kv(self) -> int:
        """The number of query heads that share keys and values."""
        return self.num_heads // self.num_kv_heads


def read_decoder_config(content: Mapping[str, Any]) -> DecoderConfig:
    """The decoder that `content`, the parsed config.json, describes. Raises ModelError with the reason if it cannot."""
    obstacle = find_obstacle(content)
    if obstacle is not None:
        raise ModelError(obstacle)
    is_qwen = content["model_type"] == "qwen2"
    has_bias = bool(content.get("attention_bias", False))
    num_heads = content["num_attention_heads"]
    max_tokens = content.get("max_position_embeddings") or _MAX_TOKENS[content["model_type"]]
    head_dim = _find_head_dim(content)
    return DecoderConfig(
        vocab_size=content["vocab_size"],
        hidden_size=content["hidden_size"],
        ffn_size=content["intermediate_size"],
        num_layers=content["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=content.get("num_key_value_heads") or num_heads,
        head_dim=head_dim,
        norm_epsilon=float(content["rms_norm_eps"]),
        max_tokens=max_tokens,
        rotary=read_rotary(content, head_dim),
        has_qkv_bias=is_qwen or has_bias,
        has_output_bias=has_bias,
        has_ffn_bias=bool(content.get("mlp_bias", False)),
        ties_embeddings=bool(content.get("tie_word_embeddings", False)),
    )


def find_obstacle(content: Mapping[str, Any]) -> str | None:
    """Why the decoder of a parsed config.json cannot be run on onnxruntime here; None if it can."""
    family = content.get("model_type")
    if not isinstance(family, str) or family not in _CLASSES:
        return f"its family is {_show(family)}, and only {', '.join(_CLASSES)} run without torch"
    return (
        _find_class_obstacle(content)
        or _find_unknown(content)
        or _find_size_obstacle(content)
        or _find_switch_obstacle(content)
        or _find_window(content)
        or find_rotary_obstacle(content)
    )


def _find_class_obstacle(content: Mapping[str, Any]) -> str | None:
    wanted = _CLASSES[content["model_type"]]
    classes = content.get("architectures")
    if classes is None or classes == [wanted]:
        return None
    return f"its config.json names the architecture {_show(classes)}, and not {wanted}"


def _find_unknown(content: Mapping[str, Any]) -> str | None:
    for name, value in content.items():
        if name not in _KNOWN:
            return f"its config.json has the field {quote(name)}, which is not known here"
        if name in _FIXED and value not in _FIXED[name]:
            return f"its config.json has {name} = {_show(value)}, which does not run without torch"
    return None


def _find_size_obstacle(content: Mapping[str, Any]) -> str | None:
    for name in (*_SIZES, *_OPTIONAL_SIZES):
        value = content.get(name)
        if value is None and name in _OPTIONAL_SIZES:
            continue
        if type(value) is not int or value < 1:
            return f"{name} in its config.json must be a positive whole number, not {_show(value)}"
    if content["model_type"] != "llama" and "num_key_value_heads" not in content:
        return "its config.json does not say num_key_value_heads"
    num_heads, head_dim = content["num_attention_heads"], _find_head_dim(content)
    if num_heads % (content.get("num_key_value_heads") or num_heads):
        return "its num_attention_heads is not a multiple of num_key_value_heads"
    if content.get("head_dim") is None and content["hidden_size"] % num_heads:
        return "its hidden_size is not a multiple of num_attention_heads"
    if head_dim % _HEAD_DIM_UNIT:
        return f"its heads have {head_dim} numbers, which is not a multiple of {_HEAD_DIM_UNIT}"
    epsilon = content.get("rms_norm_eps")
    if not isinstance(epsilon, float) or not 0 < epsilon < 1:
        return f"rms_norm_eps in its config.json must be a number between 0 and 1, not {_show(epsilon)}"
    return None


def _find_head_dim(content: Mapping[str, Any]) -> int:
    return int(content.get("head_dim") or content["hidden_size"] // content["num_attention_heads"])


def _find_switch_obstacle(content: Mapping[str, Any]) -> str | None:
    for name in _SWITCHES:
        value = content.get(name, False)
        if type(value) is not bool:
            return f"{name} in its config.json must be true or false, not {_show(value)}"
    if content["model_type"] != "llama":
        for name in ("attention_bias", "mlp_bias"):
            if name in content:
                return f"its config.json has {name}, which its family does not have"
    return None


def _find_window(content: Mapping[str, Any]) -> str | None:
    """The window of attention, if there is one: it is not supported."""
    layer_types = content.get("layer_types")
    if layer_types is not None and layer_types != ["full_attention"] * content["num_hidden_layers"]:
        return f"its layers have the types {_show(layer_types)}, and only full_attention runs without torch"
    if content.get("use_sliding_window", False):
        return "its attention has a sliding window (use_sliding_window), which does not run without torch"
    if content["model_type"] == "mistral" and "sliding_window" not in content:
        return "its config.json does not say whether its attention has a sliding window (sliding_window)"
    if content.get("sliding_window") is not None and content["model_type"] != "qwen2":
        return "its attention has a sliding window (sliding_window), which does not run without torch"
    return None


def _show(value: object) -> str:
    return quote(value) if isinstance(value, str) else quote(str(value))[1:-1]
