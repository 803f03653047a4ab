"""Reads the configuration of a model folder, and refuses models by it alone, before their weights are read."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers

from inference.errors import MidtokenError, ModelError
from inference.model.pytorch.attention.transformers_hook import ATTENTION_NAME, OWN_ATTENTION

# Settings that would give wrong logits without an error, at least in long texts.
_SETTINGS = {
    "alibi": "adds positions to the scores",
    "use_alibi": "adds positions to the scores",
    "attn_temperature_tuning": "takes a token's row in the forward pass for its position",
}
_LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")


def read_config(folder: Path) -> Any:  # a transformers configuration, which has no types
    """The configuration in `folder`. Raises ModelError if transformers does not know it."""
    try:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each family checks its configuration with exceptions of its own
        raise _explain_unread(_read_json(folder)) from error


def _explain_unread(content: Any) -> ModelError:
    """The error for a configuration with `content` that transformers does not take."""
    family = content.get("model_type") if isinstance(content, dict) else None
    if not isinstance(family, str):
        return ModelError("its config.json cannot be read, or names no model_type (the family of the model)")
    if family in transformers.CONFIG_MAPPING:
        return _refuse(family, "config.json has values that its code in transformers does not take")
    if "auto_map" in content:
        return _refuse(family, "they bring code of their own in the model folder, which is never run")
    return _refuse(family, f"the installed transformers {transformers.__version__} does not know this family")


def _read_json(folder: Path) -> Any:
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def check_config(config: Any) -> None:  # a transformers configuration, which has no types
    """Raises ModelError, with the family, the layer type and the reason, if `config` has unsupported layers."""
    with refusing_family(config.model_type):
        if type(config) not in transformers.AutoModelForCausalLM._model_mapping:
            raise ModelError("transformers knows no language model of this family that predicts the next token")
        if getattr(config, "is_encoder_decoder", False):
            raise ModelError("it has an encoder, and writes only about the text that the encoder has read")
        text_config = config.get_text_config(decoder=True)
        for index, layer_type in enumerate(getattr(text_config, "layer_types", None) or ()):
            if layer_type not in _LAYER_TYPES:
                raise ModelError(
                    f"layer {index} is of the type {layer_type}, and only {', '.join(_LAYER_TYPES[:-1])} and "
                    f"{_LAYER_TYPES[-1]} can be run"
                )
        if getattr(text_config, "num_attention_heads", None) is None:
            raise ModelError("the configuration names no num_attention_heads, so the layers are not attention")
        for name, meaning in _SETTINGS.items():
            if getattr(text_config, name, False):
                raise ModelError(f"its attention {meaning} ({name} is true)")


@contextmanager
def refusing_quantized(config: Any) -> Iterator[None]:  # a transformers configuration, which has no types
    """Inside the context, a failure raises ModelError that says so if the weights of the model are quantized."""
    quantization = getattr(config, "quantization_config", None)
    try:
        yield
    except ModelError as error:
        if not isinstance(quantization, dict):
            raise
        method = quantization.get("quant_method")
        raise ModelError(
            f"its weights are quantized{f' by {method}' if method else ''}, and transformers cannot read them here; "
            "use the model with weights that are not quantized"
        ) from error


@contextmanager
def refusing_family(family: str) -> Iterator[None]:
    """Inside the context, a failure raises ModelError, with the family and one plain reason."""
    try:
        yield
    except ModelError as error:
        raise _refuse(family, str(error)) from error
    except MidtokenError:
        raise
    except ImportError as error:
        missing = f" ({error.name})" if error.name else ""
        reason = f"its code in transformers needs a Python package that is not installed{missing}"
        raise _refuse(family, reason) from error
    except Exception as error:  # the code of some hundred families raises undocumented exceptions
        is_own = isinstance(error, KeyError) and error.args == (ATTENTION_NAME,)  # from a table of attention classes
        reason = OWN_ATTENTION if is_own else "its code in transformers fails with this configuration"
        raise _refuse(family, reason) from error


def _refuse(family: str, reason: str) -> ModelError:
    return ModelError(f"models of the family {family!r} cannot be run: {reason}")
