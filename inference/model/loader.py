"""Loads a model folder for an engine or a character-level model."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from inference.config import EngineConfig
from inference.errors import MidtokenError, ModelError
from inference.healing.text_encoder import TextEncoder
from inference.healing.tokenizer.loader import load_tokenizer
from inference.model.attention import ATTENTION_NAME, register_attention
from inference.model.checks.configuration import check_config, read_config, refusing_family, refusing_quantized
from inference.model.checks.forward_pass import check_forward_pass
from inference.model.checks.positions import find_max_tokens
from inference.model.checks.weights import check_weights, explain_unread
from inference.model.language_model import LanguageModel
from inference.model.memory import is_out_of_memory, refusing_when_out_of_memory
from inference.model.runner import Runner
from inference.model.sampler import Sampler
from inference.model.torch_model import TorchModel
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

# While transformers reads the weights of one model, it changes settings of torch that hold for all threads.
_READING = threading.Lock()


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """One model, its tokenizer and its vocabulary."""

    runner: Runner
    encoder: TextEncoder
    vocabulary: Vocabulary
    trie: Trie
    start_ids: tuple[int, ...]  # every text of this model begins with these


def load_model(config: EngineConfig) -> LoadedModel:
    """The model in `config.model_dir`. Raises ModelError if it cannot be used."""
    runner = load_runner(config)
    tokenizer = load_tokenizer(config.model_dir, runner.vocab_size)
    return LoadedModel(runner, tokenizer.encoder, tokenizer.vocabulary, tokenizer.trie, tokenizer.start_ids)


def build_language_model(loaded: LoadedModel) -> LanguageModel:
    """The model as the engine's `LanguageModel`."""
    sampler = Sampler(loaded.vocabulary, HotPrefixCache(loaded.trie), loaded.trie, loaded.runner.device)
    return TorchModel(loaded.runner, sampler)


def load_runner(config: EngineConfig) -> Runner:
    """The model in `config.model_dir`, ready on its device. Raises ModelError if it would not run correctly."""
    if not (config.model_dir / "config.json").is_file():
        raise ModelError(f"{config.model_dir} is not a model folder: it has no config.json")
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
    family = model_config.model_type
    with refusing_when_out_of_memory("its weights"), _READING:
        model = _load_weights(config.model_dir, model_config, dtype).to(device)
    with refusing_family(family):
        runner = Runner(model, device)
        check_forward_pass(model, runner)
        runner.max_tokens = find_max_tokens(model, runner)
    return runner


def _find_device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except Exception as error:  # each kind of device has its own
        raise ModelError(f"the device {name!r} cannot be used here") from error


def _find_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or dtype not in _DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)
        raise ModelError(f"models cannot be run with numbers of the type {name!r}; the types are {names}")
    return dtype


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
