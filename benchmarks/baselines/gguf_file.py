"""Converts a Llama model in Hugging Face layout to one GGUF file, which llama.cpp reads.

The library `gguf` names the tensors, quantizes and writes. What is done here:
- llama.cpp turns neighbouring pairs of a head's dimensions (0 and 1, 2 and 3, …), Hugging Face the two halves (0 and
  n/2, …). So the rows of the query and key projections are put in another order.
- llama.cpp knows pre-tokenizers by name. A name stands for one regular expression; another one is refused.
- Norms stay in float32, as in the files that llama.cpp's own converter writes.
"""

import json
from enum import StrEnum
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes  # noqa: F401  # tells NumPy what bfloat16 is
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

_PRE_TOKENIZERS = {
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+": "qwen2"
}

Array = npt.NDArray[Any]  # of a numeric type that the file names


class Precision(StrEnum):
    """How the matrices are stored."""

    F32 = "f32"
    F16 = "f16"
    Q8_0 = "q8_0"  # blocks of 32 weights in 8 bits, with one scale in float16
    Q4_0 = "q4_0"  # as Q8_0 in 4 bits, but the embeddings, which are the head too, in 8


_FILE_TYPES = {
    Precision.F32: gguf.LlamaFileType.ALL_F32,
    Precision.F16: gguf.LlamaFileType.MOSTLY_F16,
    Precision.Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0,
    Precision.Q4_0: gguf.LlamaFileType.MOSTLY_Q4_0,
}


def write_gguf(model_dir: Path, path: Path, precision: Precision, num_parts: int = 1) -> None:
    """Writes the model in `model_dir` to `path`, or to so many files with numbers in their names.

    Raises ValueError if it cannot be written rightly, and says why.
    """
    config = json.loads((model_dir / "config.json").read_text())
    _check_config(config)
    tensors = load_file(model_dir / "model.safetensors")
    per_part = -(-len(tensors) // num_parts) if num_parts > 1 else 0
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.LLAMA], split_max_tensors=per_part)
    _add_config(writer, config, precision)
    _add_tokenizer(writer, json.loads((model_dir / "tokenizer.json").read_text()), config)
    for name, tensor in tensors.items():
        _add_tensor(writer, name, _order_rows(name, tensor.astype(np.float32), config), config, precision)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _check_config(config: dict[str, Any]) -> None:
    expected = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
    for key, value in expected.items():
        if config[key] != value:
            raise ValueError(f"config.json: {key} is {config[key]!r}; only {value!r} can be converted")
    if config["rope_parameters"]["rope_type"] != "default":
        raise ValueError(f"config.json: rope_type is {config['rope_parameters']['rope_type']!r}, not 'default'")


def _add_config(writer: gguf.GGUFWriter, config: dict[str, Any], precision: Precision) -> None:
    writer.add_name("midtoken")
    writer.add_file_type(_FILE_TYPES[precision])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def _add_tokenizer(writer: gguf.GGUFWriter, file: dict[str, Any], config: dict[str, Any]) -> None:
    if not file:  # of a model without a tokenizer
        writer.add_tokenizer_model("none")
        return
    model, added = file["model"], {token["id"]: token for token in file["added_tokens"]}
    if model["type"] != "BPE" or file["normalizer"] is not None:
        raise ValueError("tokenizer.json: only byte-level BPE without a normalizer can be converted")
    spelled = {token_id: text for text, token_id in model["vocab"].items()}
    spelled |= {token_id: token["content"] for token_id, token in added.items()}
    if sorted(spelled) != list(range(config["vocab_size"])):
        raise ValueError("tokenizer.json: its ids are not 0 up to vocab_size")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_find_pre_tokenizer(file))
    writer.add_token_list([spelled[token_id] for token_id in range(len(spelled))])
    writer.add_token_types([_find_type(added.get(token_id)) for token_id in range(len(spelled))])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)


def _find_pre_tokenizer(file: dict[str, Any]) -> str:
    """The name under which llama.cpp knows the regular expression of the file."""
    parts = file["pre_tokenizer"].get("pretokenizers", [])
    if [part["type"] for part in parts] != ["Split", "ByteLevel"] or parts[1]["use_regex"]:
        raise ValueError("tokenizer.json: the pre-tokenizer is not a regular expression followed by bytes")
    expression = parts[0]["pattern"].get("Regex")
    if expression not in _PRE_TOKENIZERS:
        raise ValueError(f"tokenizer.json: llama.cpp has no name for the pre-tokenizer {expression!r}")
    return _PRE_TOKENIZERS[expression]


def _find_type(added: dict[str, Any] | None) -> int:
    if added is None:
        return int(gguf.TokenType.NORMAL)
    return int(gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED)


def _order_rows(name: str, tensor: Array, config: dict[str, Any]) -> Array:
    """The rows of a query or key projection in llama.cpp's order: each head's two halves, alternating."""
    num_heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    heads = num_heads.get(name.split(".")[-2])
    if heads is None:
        return tensor
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, tensor.shape[1])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def _add_tensor(
    writer: gguf.GGUFWriter, name: str, tensor: Array, config: dict[str, Any], precision: Precision
) -> None:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    gguf_name = names.get_name(name, try_suffixes=(".weight",))
    if gguf_name is None:
        raise ValueError(f"model.safetensors: GGUF has no name for {name} in a Llama model")
    if tensor.ndim == 1 or precision is Precision.F32:
        writer.add_tensor(gguf_name, tensor)
    elif precision is Precision.F16:
        writer.add_tensor(gguf_name, tensor.astype(np.float16))
    else:
        has_4_bits = precision is Precision.Q4_0 and "embed_tokens" not in name
        kind = gguf.GGMLQuantizationType.Q4_0 if has_4_bits else gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(gguf_name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
