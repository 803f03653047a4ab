"""Loads a model folder, and decides which runner serves it.

On the CPU, decoders that `inference.model.onnx` can run are run with onnxruntime. All others, other devices and other
types of numbers need torch and transformers, which the extra `torch` installs. A GGUF file is run by llama.cpp.
"""

import dataclasses
from importlib.util import find_spec
from pathlib import Path

from inference.config import AUTO_DEVICE, AUTO_DTYPE, EngineConfig
from inference.errors import ModelError, quote
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.language_model import LanguageModel, LoadedModel
from inference.model.onnx.conversion import find_folder_obstacle, load_onnx_model
from inference.model.onnx.decoder_config import read_decoder_config
from inference.model.onnx.weights import Precision
from inference.model_folder import (
    GGUF_NAME,
    check_description,
    check_model_folder,
    find_gguf_file,
    read_folder_file,
    read_object,
)
from inference.platforms import find_install_command

_EXACT_DTYPE = "float32"
_OWN_DTYPES = {precision.value for precision in Precision} - {_EXACT_DTYPE}  # which torch has not
_DEVICES = (AUTO_DEVICE, "cpu", "cuda", "mps", "xpu")
_TORCH_PACKAGES = ("torch", "transformers")


def load_model(config: EngineConfig) -> LoadedModel[LanguageModel]:
    """The model in `config.model_dir`, ready on its device. Raises ModelError if it would not run correctly."""
    check_model_folder(config.model_dir)
    if (config.model_dir / GGUF_NAME).exists():
        require_llama_cpp(find_gguf_file(config.model_dir).name)
        from inference.model.gguf.model import load_gguf_model  # here, because it loads llama.cpp

        return load_gguf_model(config)
    config = dataclasses.replace(config, dtype=_choose_dtype(config))
    obstacle = find_obstacle(config)
    if obstacle is None:
        return load_onnx_model(config)
    if config.dtype in _OWN_DTYPES:
        raise ModelError(
            f"cannot load the model in {config.model_dir} in {config.dtype}: {obstacle}; in {_EXACT_DTYPE} (--dtype), "
            "it is run with torch if that can run it"
        )
    if find_spec("torch") is None and config.device.partition(":")[0] not in _DEVICES:  # a wrong name, most likely
        raise ModelError(f"no device is called {quote(config.device)}; torch has {', '.join(_DEVICES[1:])} (--device)")
    require_torch(config.model_dir, obstacle)
    from inference.model.pytorch.loader import load_torch_model  # here, because it loads torch

    return load_torch_model(config)


def check_runner(folder: Path) -> None:
    """Raises ModelError if the model folder lacks something, or says that it cannot be run here."""
    check_model_folder(folder)
    if (folder / GGUF_NAME).exists():
        require_llama_cpp(find_gguf_file(folder).name)
    else:
        check_texts(folder)


def check_texts(folder: Path) -> None:
    """Raises ModelError if the texts of a model folder, whose weights may be missing, say that it cannot be run."""
    check_description(folder)
    load_tokenizer(folder)
    try:
        read_decoder_config(read_object(folder / "config.json"))
    except ModelError as obstacle:
        require_torch(folder, str(obstacle))
        from inference.model.pytorch.loader import check_config, read_config  # here, because it loads torch

        check_config(read_config(folder))


def require_torch(folder: Path, obstacle: str) -> None:
    """Raises ModelError if torch, which `obstacle` makes necessary, is not installed."""
    missing = [name for name in _TORCH_PACKAGES if find_spec(name) is None]
    if missing:
        raise ModelError(
            f"cannot load the model in {folder}: it cannot be run without torch, because {obstacle}; and "
            f"{' and '.join(missing)} cannot be imported here; run {find_install_command('torch')}"
        )


def require_llama_cpp(name: str) -> None:
    """Raises ModelError if what runs the GGUF file of this name is not installed."""
    if find_spec("llama_cpp") is None:
        raise ModelError(
            f"cannot load {name}: a GGUF file is run with llama.cpp, and llama_cpp "
            f"cannot be imported here; run {find_install_command('gguf')}, which needs a C++ compiler"
        )


def _choose_dtype(config: EngineConfig) -> str:
    """The type of numbers: that of the setting, else what the folder's file names and can be had, else float32.

    Without torch, `auto` is left if nothing is named: the size decides.
    """
    if config.dtype != AUTO_DTYPE:
        return config.dtype
    named = read_folder_file(config.model_dir).dtype or AUTO_DTYPE
    return named if find_obstacle(dataclasses.replace(config, dtype=named)) is None else _EXACT_DTYPE


def find_obstacle(config: EngineConfig) -> str | None:
    """Why the model cannot be run on onnxruntime; None if it can."""
    if config.device not in (AUTO_DEVICE, "cpu"):
        return f"the device is {config.device}"
    if config.dtype not in {AUTO_DTYPE, *(precision.value for precision in Precision)}:
        return f"its numbers are to be of the type {config.dtype}"
    return find_folder_obstacle(config.model_dir)
