"""Loads a model folder for torch: the code of transformers, checked before it is used.

Models are refused by their configuration before their weights are read, then by the weights that are missing or that
the family's code does not use, then by trial runs.
"""

import logging
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from inference.config import AUTO_DEVICE, AUTO_DTYPE, EngineConfig
from inference.errors import MidtokenError, ModelError, name_some, refuse
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.language_model import LoadedModel, check_tree_difference, measure_tree_difference
from inference.model.pytorch.model import TorchModel, TorchTokens, is_out_of_memory, refusing_when_out_of_memory
from inference.model.sizes import choose_auto_tokens
from inference.model_folder import read_object

# Settings that would give wrong logits without an error, at least in long texts.
_SETTINGS = {
    "alibi": "adds positions to the scores",
    "use_alibi": "adds positions to the scores",
    "attn_temperature_tuning": "takes a token's row in the forward pass for its position",
}
# Differences of logits, as a share of their spread. The bundled model has 1e-6 in float32; wrong layers have over 7e-3.
_TOLERANCES = {torch.float64: 1e-4, torch.float32: 1e-3}
_HALF_TOLERANCE = 0.15
_LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")


def read_config(folder: Path) -> Any:  # a transformers configuration, which has no types
    """The configuration in `folder`. Raises ModelError if transformers does not know it."""
    try:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each family checks its configuration with exceptions of its own
        content = read_object(folder / "config.json")
        family = content.get("model_type")
        if not isinstance(family, str):
            raise ModelError("its config.json names no model_type (the family of the model)") from error
        reasons = {
            "config.json has values that its code in transformers does not take": family in transformers.CONFIG_MAPPING,
            "they bring code of their own in the model folder, which is never run": "auto_map" in content,
            f"the installed transformers {transformers.__version__} does not know this family": True,
        }
        raise _refuse(family, next(filter(reasons.get, reasons))) from error


def check_config(config: Any) -> None:  # a transformers configuration, which has no types
    """Raises ModelError, with the family, the layer type and the reason, if `config` has unsupported layers."""
    with refusing_family(config.model_type):
        text_config = config.get_text_config(decoder=True)
        kinds = enumerate(getattr(text_config, "layer_types", None) or ())
        index, kind = next((each for each in kinds if each[1] not in _LAYER_TYPES), (0, _LAYER_TYPES[0]))
        is_known = type(config) in transformers.AutoModelForCausalLM._model_mapping
        reasons = {
            "transformers knows no language model of this family that predicts the next token": not is_known,
            "it has an encoder, and writes only about the text that the encoder has read": (
                getattr(config, "is_encoder_decoder", False)
            ),
            f"layer {index} is of the type {kind}, and only {', '.join(_LAYER_TYPES[:-1])} and {_LAYER_TYPES[-1]} "
            "can be run": kind not in _LAYER_TYPES,
            "the configuration names no num_attention_heads, so the layers are not attention": (
                getattr(text_config, "num_attention_heads", None) is None
            ),
            "its local attention counts the rows of a forward pass, not the positions of their tokens": (
                "local" in getattr(text_config, "attention_layers", ())
            ),
        }
        settings = {
            f"its attention {meaning} ({name} is true)": getattr(text_config, name, False)
            for name, meaning in _SETTINGS.items()
        }
        refuse(ModelError, reasons | settings)


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
        raise _refuse(family, "its code in transformers fails with this configuration") from error


def _refuse(family: str, reason: str) -> ModelError:
    return ModelError(f"models of the family {family!r} cannot be run: {reason}")


_log = logging.getLogger(__name__)

_LAYER = re.compile(r".*?\.\d+(?=\.)")


def check_weights(  # `model`: of transformers, which has no types
    model: Any, missing: Collection[str], unused: Collection[str]
) -> None:
    """Raises ModelError if weights are missing, or if a layer has more of them than its code uses.

    Weights for parts that the model does not have, as the vision tower of a text model, are named in a warning.
    """
    modules, family = dict(model.named_modules()), model.config.model_type
    strange = sorted(name for name in unused if _is_of_layer(name, modules))
    refuse(
        ModelError,
        {
            f"its files lack the weights {name_some(sorted(missing))}, which models of the family {family!r} have; "
            "download the model again": missing,  # transformers has filled them with random numbers
            f"its files have the weights {name_some(strange)}, which the code of its family in transformers does not "
            "use, so it is another model than its config.json says": strange,
        },
    )
    if unused:
        _log.warning("weights in the model folder that the model does not use: %s", name_some(sorted(unused)))


def _is_of_layer(name: str, modules: dict[str, torch.nn.Module]) -> bool:
    """True for a weight of a layer that exists. False for masks and frequencies, which old files hold as well."""
    layer = _LAYER.match(name)
    if layer is None or layer[0] not in modules:
        return False
    parent, _, last = name.rpartition(".")
    return last == "weight" or (parent in modules and any(True for _ in modules[parent].parameters(recurse=False)))


# While transformers reads the weights of one model, it changes settings of torch that hold for all threads.
_READING = threading.Lock()


def load_torch_model(config: EngineConfig) -> LoadedModel[TorchModel]:
    """The model in `config.model_dir`, run with torch whether or not another runner can. Raises ModelError."""
    try:
        return build_torch_model(config, *load_transformers_model(config))
    except MidtokenError as error:
        raise ModelError(f"cannot load the model in {config.model_dir}: {error}") from error


def load_transformers_model(config: EngineConfig) -> tuple[Any, torch.device]:  # transformers has no types
    """The model of transformers in `config.model_dir`, and the device that it is on. Raises ModelError."""
    torch.set_num_threads(config.num_threads or 1)
    try:
        device = torch.empty(0, device="cpu" if config.device == AUTO_DEVICE else config.device).device
    except Exception as error:  # each kind of device has its own
        raise ModelError(f"the device {config.device!r} cannot be used here") from error
    dtype = getattr(torch, "float32" if config.dtype == AUTO_DTYPE else config.dtype)
    model_config = read_config(config.model_dir)
    check_config(model_config)
    with refusing_when_out_of_memory("its weights"), _READING:
        return _load_weights(config.model_dir, model_config, dtype).to(device), device


def build_torch_model(config: EngineConfig, model: Any, device: torch.device) -> LoadedModel[TorchModel]:
    """A model of transformers that is on its device, with the tokenizer of `config.model_dir`. Raises ModelError."""
    with refusing_family(model.config.model_type):
        built = TorchModel(model, device)
        tokenizer = load_tokenizer(config.model_dir, built.vocab_size)
        built.tokens = TorchTokens(tokenizer.vocabulary, tokenizer.trie, device)
        check_torch_model(built)
    runs_as = f"{str(built.dtype).removeprefix('torch.')}, PyTorch on {device}"
    num_weights = sum(each.numel() for each in model.parameters())
    auto_tokens = choose_auto_tokens(num_weights, is_on_gpu=device.type != "cpu")
    return LoadedModel(built, tokenizer, runs_as, auto_tokens=auto_tokens)


def check_torch_model(model: TorchModel) -> None:
    """Raises ModelError if a tree does not get the logits that transformers computes for each of its texts alone."""
    difference = measure_tree_difference(model, model.forward_plainly)
    check_tree_difference(difference, "its code in transformers", _TOLERANCES.get(model.dtype, _HALF_TOLERANCE))


def _load_weights(folder: Path, config: Any, dtype: torch.dtype) -> Any:  # transformers has no types
    try:
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            output_loading_info=True,
            local_files_only=True,
            trust_remote_code=False,  # code in a model folder is never run
        )
    except (AttributeError, ImportError, LookupError, NotImplementedError, TypeError, ValueError) as error:
        with refusing_family(config.model_type):  # not a fault of the weights
            raise error
    except Exception as error:  # the readers of the file formats raise undocumented exceptions
        if is_out_of_memory(error):
            raise
        raise ModelError("its weights are damaged, or do not fit its config.json") from error
    check_weights(model, report["missing_keys"], report["unexpected_keys"])
    return model
