"""Loads a model folder, and decides which runner serves it.

On the CPU, decoders that `inference.model.onnx` can run are run with onnxruntime. All others, other devices and other
types of numbers need torch and transformers, which `midtoken[torch]` installs.
"""

import dataclasses
from importlib.util import find_spec

from inference.config import AUTO_DTYPE, EngineConfig
from inference.errors import ModelError
from inference.model.folder_file import read_folder_file
from inference.model.language_model import LanguageModel
from inference.model.loaded_model import LoadedModel, ModelRunner, RunnerT, add_tokenizer
from inference.model.onnx.loader import find_folder_obstacle, load_onnx_runner
from inference.model.onnx.model import OnnxModel
from inference.model.onnx.precision import Precision
from inference.model.onnx.row_store import OnnxRowStore
from inference.model.onnx.runner import OnnxRunner
from inference.model.row_store import RowStore

_EXACT_DTYPE = "float32"
_TORCH_PACKAGES = ("torch", "transformers")


def load_model(config: EngineConfig) -> LoadedModel[ModelRunner]:
    """The model in `config.model_dir`. Raises ModelError if it cannot be used."""
    return add_tokenizer(config, load_runner(config))


def build_language_model(loaded: LoadedModel[RunnerT]) -> LanguageModel:
    """The model as the engine's `LanguageModel`."""
    if isinstance(loaded.runner, OnnxRunner):
        return OnnxModel(loaded.runner, loaded.vocabulary, loaded.trie)
    from inference.model.pytorch.runner import (
        Runner,  # here, because they load torch
        TorchModel,
    )
    from inference.model.pytorch.sampler import build_sampler

    runner = loaded.runner
    assert isinstance(runner, Runner), "there are two kinds"
    return TorchModel(runner, build_sampler(runner.device, runner.dtype, loaded.vocabulary, loaded.trie))


def new_row_store(runner: ModelRunner) -> RowStore:
    """An empty store for token strings that share their beginnings. Raises OverloadedError."""
    if isinstance(runner, OnnxRunner):
        return OnnxRowStore(runner)
    from inference.model.pytorch.row_store import TorchRowStore
    from inference.model.pytorch.runner import Runner  # here, because they load torch

    assert isinstance(runner, Runner), "there are two kinds"
    return TorchRowStore(runner)


def load_runner(config: EngineConfig) -> ModelRunner:
    """The model in `config.model_dir`, ready on its device. Raises ModelError if it would not run correctly."""
    if not (config.model_dir / "config.json").is_file():
        raise ModelError(f"{config.model_dir} is not a model folder: it has no config.json")
    config = dataclasses.replace(config, dtype=_choose_dtype(config))
    obstacle = find_obstacle(config)
    if obstacle is None:
        return load_onnx_runner(config, config.graph_dir)
    missing = [name for name in _TORCH_PACKAGES if find_spec(name) is None]
    if missing:
        raise ModelError(
            f"cannot load the model in {config.model_dir}: it cannot be run without torch, because {obstacle}; and "
            f"{' and '.join(missing)} cannot be imported here. Install midtoken[torch]"
        )
    from inference.model.pytorch.loader import load_torch_runner  # here, because it loads torch

    return load_torch_runner(config)


def _choose_dtype(config: EngineConfig) -> str:
    """The type of numbers: that of the setting, else what the folder's file names and can be had, else float32."""
    if config.dtype != AUTO_DTYPE:
        return config.dtype
    named = read_folder_file(config.model_dir).dtype
    is_possible = named is not None and find_obstacle(dataclasses.replace(config, dtype=named)) is None
    return named if named is not None and is_possible else _EXACT_DTYPE


def find_obstacle(config: EngineConfig) -> str | None:
    """Why the model cannot be run on onnxruntime; None if it can."""
    if config.device != "cpu":
        return f"the device is {config.device}"
    if config.dtype not in {precision.value for precision in Precision}:
        return f"its numbers are to be of the type {config.dtype}"
    return find_folder_obstacle(config.model_dir)
