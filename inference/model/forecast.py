"""Whether a model runs on this machine, and how: from its description, before its weights are here.

`python -m inference.model.forecast FOLDER` prints it as JSON. In the folder, a file with weights may be missing, or may
have only its beginning, where safetensors and GGUF files say which weights they have, and a hole in place of the rest.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any  # parsed JSON

from inference.config import EngineConfig
from inference.errors import ModelError
from inference.healing.loaded_tokenizer import load_tokenizer
from inference.model.loader import require_llama_cpp, require_torch
from inference.model.measurements import MAX_SMALL, find_memory
from inference.model.onnx.decoder_config import read_decoder_config
from inference.model_folder import GGUF_NAME, check_description, read_object

# Of memory: what a runner takes, and for a weight: in float32, and in 8 bits as measured with 0.5 billion.
_RUNNER_NBYTES, _FLOAT_NBYTES, _INT8_NBYTES = 6e8, 4.0, 1.2
_KNOWN_NBYTES = 2**60  # of memory; more is a system that does not say

Figures = dict[str, str]  # what is said, by its name


def forecast(folder: Path) -> Figures:
    """What is known of a model. Raises ModelError if its tokenizer or family cannot be run, whatever its weights are.

    "too large" says that the machine has too little memory.
    """
    check_description(folder)
    config = read_object(folder / "config.json")
    if (folder / GGUF_NAME).exists():
        return _forecast_gguf(folder, config)
    vocabulary = load_tokenizer(folder).vocabulary
    bytes_each, runner = _choose_runner(folder, config)
    text_config = config | (config.get("text_config") or {})
    tensors = _list_tensors(folder)
    num_weights = sum(math.prod(tensor["shape"]) for tensor in tensors)
    if num_weights <= MAX_SMALL:
        bytes_each = _FLOAT_NBYTES
    figures = {
        "family": str(config["model_type"]),
        "runs with": runner,
        "tokenizer": f"right, {vocabulary.num_rows:,} tokens",
        "window": f"{text_config.get('max_position_embeddings', 'an unknown number of')} tokens at most",
    }
    dtypes = ", ".join(sorted({tensor["dtype"] for tensor in tensors}))
    return figures | (_weigh(num_weights, dtypes, num_weights * bytes_each) if tensors else {})


def _forecast_gguf(folder: Path, config: dict[str, Any]) -> Figures:
    require_llama_cpp(folder)
    from inference.model.gguf.loader import open_description  # here, because it loads llama.cpp

    llama = open_description(EngineConfig(folder))
    figures = {
        "family": str(config["architecture"]),
        "runs with": "llama.cpp",
        "tokenizer": f"right, {config['vocab_size']:,} tokens",
        "window": f"{config['max_position_embeddings']} tokens at most",
    }
    return figures | _weigh(llama.num_weights, llama.dtype, llama.weights_nbytes)


def _choose_runner(folder: Path, config: dict[str, Any]) -> tuple[float, str]:
    """The bytes of a weight that is not of a small model, and the runner. Raises ModelError if there is none."""
    try:
        read_decoder_config(config)
        return _INT8_NBYTES, "onnxruntime, on the CPU"
    except ModelError as obstacle:
        require_torch(folder, str(obstacle))
        from inference.model.pytorch.loader import check_config, read_config  # here, because it loads torch

        check_config(read_config(folder))
        return _FLOAT_NBYTES, f"PyTorch, because {obstacle}"


def _list_tensors(folder: Path) -> list[dict[str, Any]]:
    """What the safetensors files that are there say of their tensors. Raises ModelError."""
    tensors = list[dict[str, Any]]()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            header = file.read(int.from_bytes(file.read(8), "little"))
        try:
            tensors += [tensor for name, tensor in json.loads(header).items() if name != "__metadata__"]
        except ValueError:
            raise ModelError(f"{path} is no safetensors file, or is damaged") from None
    return tensors


def _weigh(num_weights: int, dtype: str, num_bytes: float) -> Figures:
    needed, present = num_bytes + _RUNNER_NBYTES, find_memory()
    here = f", of {present / 1e9:.0f} GB here" if present < _KNOWN_NBYTES else ""
    said = {
        "weights": f"{num_weights / 1e6:,.0f} million, {dtype}",
        "needs": f"about {needed / 1e9:.1f} GB of memory{here}, and what is remembered of texts",
    }
    return said | ({"too large": f"it needs about {needed / 1e9:.0f} GB of memory{here}"} if needed > present else {})


if __name__ == "__main__":  # the process that downloads a model asks, before its weights
    try:
        print(json.dumps(forecast(Path(sys.argv[1]))))
    except ModelError as error:
        print(json.dumps({"refused": str(error)}))
