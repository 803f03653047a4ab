"""The configuration of a decoder, read from config.json, or the reason why the decoder cannot be run here.

A field that is not known might change what the model computes. Therefore every field must be in one of the tables
below, or the folder is refused with the field's name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.errors import ModelError, quote

_DEFAULT_THETA = 10_000.0
_KINDS: dict[str, tuple[str, ...]] = {  # and the numbers that each needs
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
_NAMES = ("rope_type", "type", "rope_theta")
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
class Rotary:
    """The frequencies of rotary positions."""

    frequencies: npt.NDArray[np.float32]  # [head_dim / 2], angle per position

    def build_tables(self, num_positions: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """The cosines and sines of the angles at the first positions, [num_positions, head_dim / 2] each."""
        angles = np.arange(num_positions, dtype=np.float32)[:, None] * self.frequencies
        return np.cos(angles), np.sin(angles)


def find_rotary_obstacle(content: Mapping[str, Any]) -> str | None:
    """Why the rotary positions of a parsed config.json cannot be computed; None if they can."""
    if content.get("rope_parameters") is not None and content.get("rope_scaling") is not None:
        return "its config.json has both rope_parameters and rope_scaling"
    parameters = _find_parameters(content)
    if not isinstance(parameters, Mapping):
        return "the scaling of rotary positions in its config.json is not a table"
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if not isinstance(kind, str) or kind not in _KINDS:
        return f"its rotary positions are of the type {kind!r}, and only {', '.join(_KINDS)} run without torch"
    for name in parameters:
        if name not in _NAMES and name not in _KINDS[kind]:
            if kind == "default" and name in _KINDS["llama3"]:
                continue  # left over in a configuration whose scaling was switched off
            return f"its rotary positions have the setting {name!r}, which is not known here"
    for name in ("rope_theta", *_KINDS[kind]):
        value = parameters.get(name, content.get(name, _DEFAULT_THETA) if name == "rope_theta" else None)
        if not _is_positive(value):
            return f"the setting {name} of its rotary positions must be a positive number, not {value!r}"
    if kind == "llama3" and not parameters["low_freq_factor"] < parameters["high_freq_factor"]:
        return "low_freq_factor of its rotary positions is not smaller than high_freq_factor"
    return None


def read_rotary(content: Mapping[str, Any], head_dim: int) -> Rotary:
    """The rotary positions of a parsed config.json in which `find_rotary_obstacle` finds nothing."""
    parameters = _find_parameters(content)
    theta = np.float32(parameters.get("rope_theta", content.get("rope_theta", _DEFAULT_THETA)))
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies: npt.NDArray[np.float32] = (1 / theta**exponents).astype(np.float32)
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind == "linear":
        frequencies = frequencies / np.float32(parameters["factor"])
    elif kind == "llama3":
        frequencies = _scale_low_frequencies(frequencies, parameters)
    return Rotary(frequencies)


def _find_parameters(content: Mapping[str, Any]) -> Any:
    parameters = content.get("rope_parameters")
    if parameters is None:
        parameters = content.get("rope_scaling")
    return {} if parameters is None else parameters


def _scale_low_frequencies(
    frequencies: npt.NDArray[np.float32], parameters: Mapping[str, Any]
) -> npt.NDArray[np.float32]:
    """Llama 3.1's scaling: low frequencies are divided by the factor, high ones stay, those between are mixed."""
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    turns = parameters["original_max_position_embeddings"] * frequencies.astype(np.float64) / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)  # of the frequency as it is
    scaled: npt.NDArray[np.float64] = share * frequencies + (1 - share) * frequencies / parameters["factor"]
    return scaled.astype(np.float32)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


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
    num_heads, head_dim, epsilon = content["num_attention_heads"], _find_head_dim(content), content.get("rms_norm_eps")
    return _find_first(
        (
            content["model_type"] != "llama" and "num_key_value_heads" not in content,
            "its config.json does not say num_key_value_heads",
        ),
        (
            num_heads % (content.get("num_key_value_heads") or num_heads) != 0,
            "its num_attention_heads is not a multiple of num_key_value_heads",
        ),
        (
            content.get("head_dim") is None and content["hidden_size"] % num_heads != 0,
            "its hidden_size is not a multiple of num_attention_heads",
        ),
        (
            head_dim % _HEAD_DIM_UNIT != 0,
            f"its heads have {head_dim} numbers, which is not a multiple of {_HEAD_DIM_UNIT}",
        ),
        (
            not isinstance(epsilon, float) or not 0 < epsilon < 1,
            f"rms_norm_eps in its config.json must be a number between 0 and 1, not {_show(epsilon)}",
        ),
    )


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
    family, layer_types = content["model_type"], content.get("layer_types")
    return _find_first(
        (
            layer_types is not None and layer_types != ["full_attention"] * content["num_hidden_layers"],
            f"its layers have the types {_show(layer_types)}, and only full_attention runs without torch",
        ),
        (
            content.get("use_sliding_window", False),
            "its attention has a sliding window (use_sliding_window), which does not run without torch",
        ),
        (
            family == "mistral" and "sliding_window" not in content,
            "its config.json does not say whether its attention has a sliding window (sliding_window)",
        ),
        (
            content.get("sliding_window") is not None and family != "qwen2",
            "its attention has a sliding window (sliding_window), which does not run without torch",
        ),
    )


def _find_first(*refusals: tuple[bool, str]) -> str | None:
    """The reason of the first refusal that holds."""
    return next((reason for holds, reason in refusals if holds), None)


def _show(value: object) -> str:
    return quote(value) if isinstance(value, str) else quote(str(value))[1:-1]
