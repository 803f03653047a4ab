"""Loads a model folder for an engine or a character-level model."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
import transformers

from inference.config import EngineConfig
from inference.errors import MidtokenError, ModelError
from inference.healing.text_encoder import TextEncoder
from inference.healing.tokenizer import load_tokenizer
from inference.model.attention import ATTENTION_NAME, register_attention
from inference.model.language_model import LanguageModel
from inference.model.layer_check import check_config, check_forward_pass
from inference.model.runner import Runner
from inference.model.sampler import Sampler
from inference.model.torch_model import TorchModel
from trie_cache.hot_prefixes import HotPrefixCache
from trie_cache.trie import Trie
from trie_cache.vocabulary import Vocabulary


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
    except Exception as error:  # transformers, safetensors and the device raise undocumented exceptions
        raise ModelError(f"cannot load the model in {config.model_dir}: {_describe(error)}") from error


def _load_runner(config: EngineConfig) -> Runner:
    device = torch.device(config.device)
    options = {"local_files_only": True, "trust_remote_code": False}  # code in a model folder is never run
    model_config = transformers.AutoConfig.from_pretrained(config.model_dir, **options)
    check_config(model_config)
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        config.model_dir,
        config=model_config,
        dtype=getattr(torch, config.dtype),
        attn_implementation=ATTENTION_NAME,
        output_loading_info=True,
        **options,
    )
    _check_complete(report["missing_keys"])
    model = model.to(device)
    runner = Runner(model, device)
    check_forward_pass(model, runner)
    return runner


def _check_complete(missing: Collection[str]) -> None:
    """Raises ModelError where weights are missing: transformers has filled them with random numbers."""
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(f"its files lack the weights {min(missing)}{more}; download the model again")


def _describe(error: Exception) -> str:
    if isinstance(error, KeyError) and error.args == (ATTENTION_NAME,):
        return "its code in transformers has its own attention, which cannot be replaced"
    return f"{type(error).__name__}: {error}"
