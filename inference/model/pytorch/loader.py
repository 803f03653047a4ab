"""Loads a model folder for torch: the code of transformers, checked before it is used."""

import threading
from pathlib import Path
from typing import Any

import torch
import transformers

from inference.config import AUTO_DTYPE, EngineConfig
from inference.errors import MidtokenError, ModelError
from inference.model.loaded_model import LoadedModel, add_tokenizer
from inference.model.pytorch.attention.pooled_attention import AttentionKernel
from inference.model.pytorch.attention.transformers_hook import ATTENTION_NAME, register_attention
from inference.model.pytorch.checks.configuration import check_config, read_config, refusing_family, refusing_quantized
from inference.model.pytorch.checks.forward_pass import check_forward_pass
from inference.model.pytorch.checks.positions import find_max_tokens
from inference.model.pytorch.checks.weights import check_weights, explain_unread
from inference.model.pytorch.memory import is_out_of_memory, refusing_when_out_of_memory
from inference.model.pytorch.runner import Runner

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

# While transformers reads the weights of one model, it changes settings of torch that hold for all threads.
_READING = threading.Lock()


def load_torch_model(config: EngineConfig) -> LoadedModel[Runner]:
    """The model in `config.model_dir`, run with torch whether or not another runner can. Raises ModelError."""
    return add_tokenizer(config, load_torch_runner(config))


def load_torch_runner(config: EngineConfig) -> Runner:
    """The model in `config.model_dir`, ready on its device. Raises ModelError if it would not run correctly."""
    register_attention()
    torch.set_num_threads(config.num_threads)
    try:
        return _load_runner(config)
    except MidtokenError as error:
        raise ModelError(f"cannot load the model in {config.model_dir}: {error}") from error


def _load_runner(config: EngineConfig) -> Runner:
    device, dtype = _find_device(config.device), _find_dtype(config.dtype)
    model_config = read_config(config.model_dir)
    check_config(model_config)
    with refusing_when_out_of_memory("its weights"), _READING:
        model = _load_weights(config.model_dir, model_config, dtype).to(device)
    return build_torch_runner(model, device)


def build_torch_runner(model: Any, device: torch.device) -> Runner:  # a transformers model, which has no types
    """A runner for a model that is on its device, and was built with `attn_implementation=ATTENTION_NAME`.

    Raises ModelError if it would not run correctly.
    """
    with refusing_family(model.config.model_type):
        runner = Runner(model, device, _find_kernel(device, next(model.parameters()).dtype))
        check_forward_pass(model, runner)
        runner.max_tokens = find_max_tokens(model, runner)
    return runner


def _find_device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except Exception as error:  # each kind of device has its own
        raise ModelError(f"the device {name!r} cannot be used here") from error


def _find_dtype(name: str) -> torch.dtype:
    dtype = torch.float32 if name == AUTO_DTYPE else getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or dtype not in _DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)
        raise ModelError(f"models cannot be run with numbers of the type {name!r}; the types are {names}")
    return dtype


def _find_kernel(device: torch.device, dtype: torch.dtype) -> AttentionKernel | None:
    """The kernel for the attention of all sequences together; None where each sequence has calls of its own."""
    if device.type != "cuda" or dtype == torch.float64:  # the language of the kernel has no products in float64
        return None
    from inference.model.pytorch.kernels.tree_attention import TreeAttentionKernel  # here: not all builds of torch

    return TreeAttentionKernel(torch.cuda.get_device_properties(device).multi_processor_count)


def _load_weights(folder: Path, config: Any, dtype: torch.dtype) -> Any:  # transformers has no types
    try:
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=ATTENTION_NAME,
            output_loading_info=True,
            local_files_only=True,
            trust_remote_code=False,  # code in a model folder is never run
        )
    except (AttributeError, ImportError, LookupError, NotImplementedError, TypeError, ValueError) as error:
        with refusing_quantized(config), refusing_family(config.model_type):  # not a fault of the weights
            raise error
    except Exception as error:  # the readers of the file formats raise undocumented exceptions
        if is_out_of_memory(error):
            raise
        raise ModelError(explain_unread(folder)) from error
    check_weights(model, report["missing_keys"], report["unexpected_keys"])
    return model
