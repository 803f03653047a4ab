"""The configuration of a decoder, read from config.json, or the reason why the decoder cannot be run here.

Each field that the code of transformers reads for a family, and that changes what is computed, is read here too, or
must have the value that the graph computes; a test finds these fields in that code. What it does not read changes
nothing, and is ignored.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from inference.errors import ModelError, quote, refuse
from inference.model.onnx.rotary import Rotary, read_rotary

_UNIT = 16  # onnxruntime's attention takes heads with multiples of this only
_MIN_WINDOW = 1024  # tokens; a model with a window sees no more than these

# Names of a layer's modules, and what other families call them. Modules of the same name are rows of one matrix.
_FUSED = {
    **{f"self_attn.{part}_proj": "self_attn.qkv_proj" for part in "qkv"},
    **{f"mlp.{part}_proj": "mlp.gate_up_proj" for part in ("gate", "up")},
}
_NOT_GATED = {"mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"}
_NORMS_AFTER = {
    "input_layernorm": "post_attention_layernorm",
    "post_attention_layernorm": "post_feedforward_layernorm",
}

_ACTIVATIONS = {  # and the approximation of GELU, if it is that
    **dict.fromkeys(("silu", "swish"), None),
    **dict.fromkeys(("gelu", "gelu_python"), "none"),
    **dict.fromkeys(("gelu_pytorch_tanh", "gelu_new", "gelu_fast"), "tanh"),
}

_MULTIPLIERS = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")

# What transformers assumes for fields that are not in the file.
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("attention_bias", "mlp_bias", "use_qkv_bias", "use_sliding_window", "tie_word_embeddings"), False),
    **dict.fromkeys(("num_key_value_heads", "head_dim", "sliding_window"), None),
    **dict.fromkeys(_MULTIPLIERS, 1.0),
    "no_rope_layer_interval": 4,
    "use_bias": True,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rope_theta": 10_000.0,
}

# Fields that the code of all families reads, with the values that the graph computes.
_FIXED: dict[str, tuple[Any, ...]] = {
    "is_encoder_decoder": (False,),
    "is_causal": (True,),
    **dict.fromkeys(("use_bidirectional_attention", "qk_layernorm", "use_parallel_residual"), (False, None)),
    **dict.fromkeys(("per_layer_config", "transformers_weights"), (None,)),
    **dict.fromkeys(("text_config", "decoder", "generator", "text_encoder"), (None,)),  # a decoder inside of another
}


@dataclass(frozen=True, slots=True)
class Family:
    """The code of a family in transformers, as far as it differs from that of Llama."""

    class_name: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    qkv_bias: str | bool = "attention_bias"  # the field that says it, or what is always so
    output_bias: str | bool = "attention_bias"  # of the projection after attention
    ffn_bias: str | bool = False
    norm_epsilon: str = "rms_norm_eps"  # the field
    has_layer_norm: bool = False  # norms subtract the mean and add biases; others divide by the root mean square only
    norm_offset: int = 0  # added to the factors of norms
    norms_after: bool = False  # norms come after attention and the feed-forward network, and not before them
    head_norms: Literal["none", "each", "all"] = "none"  # of queries and keys: of each head, or of all together
    has_gate: bool = True  # in the feed-forward network
    activations: Mapping[str, str] = field(default_factory=dict)  # whose names mean another one
    scales_embeddings: bool = False
    has_multipliers: bool = False
    has_window_switch: bool = False
    has_plain_layers: bool = False
    turns_parts: bool = False  # rotary positions may turn a part of each head
    rotary_aliases: Mapping[str, str] = field(default_factory=dict)
    stored_names: Mapping[str, str] = field(default_factory=dict)  # what the files call modules of a layer


_QWEN = {"max_position_embeddings": 32_768, "num_key_value_heads": 32, "sliding_window": 4096}
FAMILIES = {
    "llama": Family("LlamaForCausalLM", ffn_bias="mlp_bias"),
    "mistral": Family(
        "MistralForCausalLM",
        {"max_position_embeddings": 131_072, "num_key_value_heads": 8, "sliding_window": 4096},
        qkv_bias=False,
        output_bias=False,
    ),
    "qwen2": Family("Qwen2ForCausalLM", _QWEN, qkv_bias=True, output_bias=False, has_window_switch=True),
    "qwen3": Family("Qwen3ForCausalLM", {**_QWEN, "head_dim": 128}, head_norms="each", has_window_switch=True),
    "starcoder2": Family(
        "Starcoder2ForCausalLM",
        {
            "max_position_embeddings": 4096,
            "num_key_value_heads": 2,
            "hidden_act": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
        },
        qkv_bias="use_bias",
        output_bias="use_bias",
        ffn_bias="use_bias",
        norm_epsilon="norm_epsilon",
        has_layer_norm=True,
        has_gate=False,
        stored_names=_NOT_GATED,
    ),
    "granite": Family("GraniteForCausalLM", ffn_bias="mlp_bias", has_multipliers=True),
    "gemma": Family(
        "GemmaForCausalLM",
        {
            "max_position_embeddings": 8192,
            "num_key_value_heads": 16,
            "head_dim": 256,
            "hidden_act": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
        },
        norm_offset=1,
        activations={"gelu": "tanh"},
        scales_embeddings=True,
    ),
    "phi3": Family(
        "Phi3ForCausalLM",
        {"max_position_embeddings": 4096, "original_max_position_embeddings": 4096},
        qkv_bias=False,
        output_bias=False,
        turns_parts=True,
        rotary_aliases={"su": "longrope", "yarn": "longrope"},
        stored_names=_FUSED,
    ),
    "smollm3": Family(
        "SmolLM3ForCausalLM",
        {
            "max_position_embeddings": 32_768,
            "num_key_value_heads": 4,
            "rope_theta": 2_000_000.0,
            "tie_word_embeddings": True,
        },
        ffn_bias="mlp_bias",
        has_window_switch=True,
        has_plain_layers=True,
    ),
    "olmo2": Family("Olmo2ForCausalLM", head_norms="all", norms_after=True, stored_names=_NORMS_AFTER),
    "stablelm": Family(
        "StableLmForCausalLM",
        {"max_position_embeddings": 4096, "num_key_value_heads": 32, "partial_rotary_factor": 0.25},
        qkv_bias="use_qkv_bias",
        output_bias=False,
        norm_epsilon="layer_norm_eps",
        has_layer_norm=True,
        turns_parts=True,
    ),
}


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """What a decoder computes."""

    family: Family
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
    plain_layers: frozenset[int]  # those without rotary positions
    gelu: str | None  # the activation of the feed-forward network: GELU with this approximation; None: SiLU
    has_qkv_bias: bool
    has_output_bias: bool  # of the projection after attention
    has_ffn_bias: bool
    embedding_scale: float
    attention_scale: float  # of scores
    residual_scale: float  # of what attention and the feed-forward network add
    logits_scale: float
    ties_embeddings: bool  # the head uses the embeddings of the tokens


def read_decoder_config(content: Mapping[str, Any]) -> DecoderConfig:
    """The decoder that `content`, the parsed config.json, describes. Raises ModelError with the reason if it cannot."""
    name = content.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ModelError(f"its family is {_show(name)}, and only {', '.join(FAMILIES)} run without torch")
    family = FAMILIES[name]
    fields = _Fields({**_DEFAULTS, **family.defaults, **content})
    fields.check(family)
    num_layers, max_tokens = (fields.read(name, _SIZE) for name in ("num_hidden_layers", "max_position_embeddings"))
    num_heads, hidden_size = (fields.read(name, _SIZE) for name in ("num_attention_heads", "hidden_size"))
    head_dim = fields.read("head_dim", _HEAD_DIM, hidden_size // num_heads if hidden_size % num_heads == 0 else None)
    rotary = read_rotary(fields.content, head_dim, is_partial=family.turns_parts, aliases=family.rotary_aliases)
    scales = {name: fields.read(name, _NUMBER) for name in _MULTIPLIERS if family.has_multipliers}
    return DecoderConfig(
        family=family,
        vocab_size=fields.read("vocab_size", _SIZE),
        hidden_size=hidden_size,
        ffn_size=fields.read("intermediate_size", _SIZE),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=fields.read_num_kv_heads(num_heads),
        head_dim=head_dim,
        norm_epsilon=fields.read(family.norm_epsilon, _FRACTION),
        max_tokens=min(max_tokens, rotary.max_tokens, fields.read_window(family, num_layers) or max_tokens),
        rotary=rotary,
        plain_layers=fields.find_plain_layers(num_layers) if family.has_plain_layers else frozenset(),
        gelu={**_ACTIVATIONS, **family.activations}[fields.read("hidden_act", _ACTIVATION)],
        has_qkv_bias=fields.read_switch(family.qkv_bias),
        has_output_bias=fields.read_switch(family.output_bias),
        has_ffn_bias=fields.read_switch(family.ffn_bias),
        embedding_scale=hidden_size**0.5 if family.scales_embeddings else scales.get("embedding_multiplier", 1.0),
        attention_scale=scales.get("attention_multiplier", head_dim**-0.5),
        residual_scale=scales.get("residual_multiplier", 1.0),
        logits_scale=1 / scales.get("logits_scaling", 1.0),
        ties_embeddings=fields.read_switch("tie_word_embeddings"),
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a field may be."""

    words: str
    fits: Callable[[Any], bool]


_SIZE = _Kind("a positive whole number", lambda value: type(value) is int and value > 0)
_HEAD_DIM = _Kind(f"a multiple of {_UNIT} to run without torch", lambda value: _SIZE.fits(value) and value % _UNIT == 0)
_WINDOW = _Kind(
    f"{_MIN_WINDOW:,} or more to run without torch", lambda value: _SIZE.fits(value) and value >= _MIN_WINDOW
)
_SWITCH = _Kind("true or false", lambda value: type(value) is bool)
_FRACTION = _Kind("a number between 0 and 1", lambda value: isinstance(value, float) and 0 < value < 1)
_NUMBER = _Kind("a positive number", lambda value: type(value) in (int, float) and 0 < value < math.inf)
_ACTIVATION = _Kind(
    f"one of {', '.join(_ACTIVATIONS)} to run without torch",
    lambda value: isinstance(value, str) and value in _ACTIVATIONS,
)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of config.json, with what transformers assumes for others. All methods raise ModelError."""

    content: Mapping[str, Any]

    def check(self, family: Family) -> None:
        """Checks the fields of which the graph computes one value only."""
        classes = self.content.get("architectures")
        if classes != [family.class_name] and (classes is not None or "auto_map" in self.content):
            raise ModelError(f"its config.json names the architecture {_show(classes)}, and not {family.class_name}")
        refuse(ModelError, {
            f"its config.json has {name} = {_show(self.content.get(name))}, which needs torch": (
                self.content.get(name, values[0]) not in values
            )
            for name, values in _FIXED.items()
        })  # fmt: skip

    def read(self, name: str, kind: _Kind, default: object = None) -> Any:  # its type depends on the kind
        value = self.content.get(name)
        value = default if value is None else value
        if not kind.fits(value):
            raise ModelError(f"{name} in its config.json must be {kind.words}, not {_show(value)}")
        return value

    def read_switch(self, name: str | bool) -> bool:
        """The value of the field, or what is always so."""
        return name if isinstance(name, bool) else bool(self.read(name, _SWITCH))

    def read_num_kv_heads(self, num_heads: int) -> int:
        kind = _Kind("a divisor of num_attention_heads", lambda value: _SIZE.fits(value) and num_heads % value == 0)
        return int(self.read("num_key_value_heads", kind, num_heads))

    def read_window(self, family: Family, num_layers: int) -> int | None:
        """The number of tokens up to which the windows of attention hide nothing; None: there are no windows."""
        is_on = not family.has_window_switch or self.read_switch("use_sliding_window")
        has_window = is_on and self.content["sliding_window"] is not None
        types = {"full_attention", "sliding_attention"} if has_window else {"full_attention"}
        kind = _Kind(
            f"{' or '.join(sorted(types))} for each layer to run without torch",
            lambda value: _is_list(value, num_layers, types),
        )
        self.read("layer_types", kind, ["full_attention"] * num_layers)
        return int(self.read("sliding_window", _WINDOW)) if has_window else None

    def find_plain_layers(self, num_layers: int) -> frozenset[int]:
        interval = self.read("no_rope_layer_interval", _SIZE)
        kind = _Kind("0 or 1 for each layer", lambda value: _is_list(value, num_layers, {0, 1}))
        turned = self.read("no_rope_layers", kind, [(layer + 1) % interval and 1 for layer in range(num_layers)])
        return frozenset(layer for layer in range(num_layers) if not turned[layer])


def _is_list(value: object, size: int, allowed: set[Any]) -> bool:
    return (
        isinstance(value, list)
        and len(value) == size
        and all(type(each) in (int, str) for each in value)
        and {*value} <= allowed
    )


def _show(value: object) -> str:
    return quote(value) if isinstance(value, str) else quote(str(value))[1:-1]
