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
_FEW_BITS = ("F4", "F6", "F8")  # types of numbers that come with scales of their own


def forecast(folder: Path) -> dict[str, str]:
    """What is known of a model, by names. Raises ModelError if it cannot be run, whatever its weights are.

    "obstacle" says that the machine has too little memory.
    """
    check_description(folder)
    config = read_object(folder / "config.json")
    runner, weights = (_open_gguf if (folder / GGUF_NAME).exists() else _read_folder)(folder, config)
    text_config = config | (config.get("text_config") or {})
    counts = [text_config.get(name) for name in ("vocab_size", "max_position_embeddings")]
    vocabulary, window = (f"{count:,} tokens" if type(count) is int else "not named" for count in counts)
    figures = {
        "family": str(config.get("architecture", config.get("model_type"))),
        "runs with": runner,
        "tokenizer": f"right, {vocabulary}",
        "window": window,
    }
    return figures | weights


def _open_gguf(folder: Path, _config: object) -> tuple[str, dict[str, str]]:
    require_llama_cpp(folder)
    from inference.model.gguf.loader import open_description  # here, because it loads llama.cpp

    llama = open_description(EngineConfig(folder))
    return "llama.cpp", _weigh(llama.num_weights, llama.dtype, llama.weights_nbytes)


def _read_folder(folder: Path, config: dict[str, Any]) -> tuple[str, dict[str, str]]:
    load_tokenizer(folder)
    runner, bytes_each = "onnxruntime, on the CPU", _INT8_NBYTES
    try:
        read_decoder_config(config)
    except ModelError as obstacle:
        require_torch(folder, str(obstacle))
        from inference.model.pytorch.loader import check_config, read_config  # here, because it loads torch

        check_config(read_config(folder))
        runner, bytes_each = f"PyTorch, because {obstacle}", _FLOAT_NBYTES
    tensors = _list_tensors(folder)
    number, dtypes = sum(math.prod(tensor["shape"]) for tensor in tensors), sorted({each["dtype"] for each in tensors})
    if few := [dtype for dtype in dtypes if dtype.startswith(_FEW_BITS)]:
        raise ModelError(f"{folder} has quantized weights, of the type {few[0]}; use the model with others")
    num_bytes = number * (_FLOAT_NBYTES if number <= MAX_SMALL else bytes_each)
    return runner, _weigh(number, ", ".join(dtypes), num_bytes) if tensors else {}


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


def _weigh(number: int, dtype: str, num_bytes: float) -> dict[str, str]:
    needed, present = num_bytes + _RUNNER_NBYTES, find_memory()
    here = f", of {present / 1e9:.0f} GB here" if present < _KNOWN_NBYTES else ""
    needs = f"about {needed / 1e9:,.1f} GB of memory{here}"
    said = {"weights": f"{number / 1e6:,.0f} million, {dtype}", "needs": f"{needs}, and what is remembered of texts"}
    return said | ({"obstacle": f"it is too large for this machine: it needs {needs}"} if needed > present else {})


if __name__ == "__main__":  # the process that downloads a model asks, before its weights
    try:
        print(json.dumps(forecast(Path(sys.argv[1]))))
    except ModelError as error:
        print(json.dumps({"refused": str(error)}))
