"""Writes GGUF files, which llama.cpp reads: of a Llama in Hugging Face layout, of its tokenizer, or of any tensors.

The library `gguf` names the tensors, quantizes and writes. What is done here:
- llama.cpp turns neighbouring pairs of a head's dimensions (0 and 1, 2 and 3, …), Hugging Face the two halves (0 and
  n/2, …). So the rows of the query and key projections are put in another order.
- llama.cpp knows pre-tokenizers by name. A name stands for one regular expression; another one is refused.
- Norms stay in float32, as in the files that llama.cpp's own converter writes.
"""

import json
import re
from collections.abc import Mapping
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
_EXPECTED = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_CONTROL_LOOK = re.compile(r"<\|.*\|>|<｜.*｜>|<unused.*>|<pad>|<mask>")

Array = npt.NDArray[Any]  # of a numeric type that the file names
_Json = Any


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
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=per_part)
    _add_config(writer, config, precision)
    spec = json.loads((model_dir / "tokenizer.json").read_text())
    if spec:
        _add_tokenizer(writer, spec, _find_pre_tokenizer(spec), config["vocab_size"])
        writer.add_eos_token_id(config["eos_token_id"])
        writer.add_pad_token_id(config["pad_token_id"])
        writer.add_add_bos_token(False)
    else:
        writer.add_tokenizer_model("none")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in tensors.items():
        gguf_name = names.get_name(name, try_suffixes=(".weight",))
        if gguf_name is None:
            raise ValueError(f"model.safetensors: GGUF has no name for {name}")
        _add_tensor(writer, gguf_name, _order_rows(name, tensor.astype(np.float32), config), precision)
    _finish(writer)


def write_tokenizer_gguf(path: Path, spec: _Json, pre: str | None, **values: _Json) -> Path:
    """Writes the tokenizer of a `tokenizer.json`, as llama.cpp's converter does, and nearly no weights.

    `pre`: the name of the pre-tokenizer. `values`: other metadata, by key; None: none.
    """
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    _add_tokenizer(writer, spec, pre)
    for key, value in values.items():
        _add_value(writer, key, value)
    return write_plain_gguf(path, writer=writer)


def write_plain_gguf(path: Path, num_parts: int = 0, writer: gguf.GGUFWriter | None = None) -> Path:
    """Writes a file with two tensors and hardly any metadata; or a part of several."""
    if writer is None:
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_name("a name " * 40)
    if num_parts:
        writer.add_uint16("split.count", num_parts)
    for number in range(2):
        writer.add_tensor(f"blk.{number}", np.zeros(32, np.float32))
    _finish(writer)
    return path


def write_random_gguf(
    path: Path,
    architecture: str,
    spec: _Json,
    values: Mapping[str, _Json],
    shapes: Mapping[str, tuple[int, ...]],
) -> Path:
    """Writes random weights of these shapes, in llama.cpp's order. `values`: by the ends of the keys.

    States decay, as those of trained models do.
    """
    writer, random = gguf.GGUFWriter(path, architecture), np.random.default_rng(0)
    _add_tokenizer(writer, spec, _find_pre_tokenizer(spec))
    for key, value in values.items():
        _add_value(writer, f"{architecture}.{key}", value)
    for name, shape in shapes.items():
        tensor = random.standard_normal(shape[::-1], np.float32)
        writer.add_tensor(name, -np.abs(tensor) if name.endswith("ssm_a") else tensor)
    _finish(writer)
    return path


def find_end(spec: _Json) -> int:
    """Any token that is no text."""
    return next(int(added["id"]) for added in spec["added_tokens"] if added["special"])


def _check_config(config: dict[str, Any]) -> None:
    for key, value in _EXPECTED.items():
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


def _add_tokenizer(writer: gguf.GGUFWriter, spec: _Json, pre: str | None, num_tokens: int = 0) -> None:
    """`num_tokens`: how many there are at least."""
    pieces = bool(spec["model"].get("byte_fallback"))
    tokens, types = _list_tokens(spec, pieces, num_tokens)
    writer.add_tokenizer_model("llama" if pieces else "gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if pieces:
        writer.add_token_scores(_find_scores(spec, tokens))
        writer.add_add_space_prefix("Prepend" in json.dumps(spec["normalizer"]))
    else:
        writer.add_token_merges([_join_merge(pair) for pair in spec["model"]["merges"]])


def _find_pre_tokenizer(spec: _Json) -> str:
    """The name under which llama.cpp knows the regular expression of the file."""
    parts = spec["pre_tokenizer"].get("pretokenizers", [])
    if [part["type"] for part in parts] != ["Split", "ByteLevel"] or parts[1]["use_regex"] or spec["normalizer"]:
        raise ValueError("tokenizer.json: it is not a regular expression followed by bytes")
    expression = parts[0]["pattern"].get("Regex")
    if expression not in _PRE_TOKENIZERS:
        raise ValueError(f"tokenizer.json: llama.cpp has no name for the pre-tokenizer {expression!r}")
    return _PRE_TOKENIZERS[expression]


def _list_tokens(spec: _Json, pieces: bool, num_tokens: int) -> tuple[list[str], list[int]]:
    found = {token_id: (piece, _NORMAL) for piece, token_id in spec["model"]["vocab"].items()}
    for added in spec["added_tokens"]:
        content = added["content"]
        is_control = added["special"] or _CONTROL_LOOK.fullmatch(content)
        found[added["id"]] = (content, _CONTROL) if is_control else (content.replace("▁", " "), _USER_DEFINED)
    for token_id, (piece, _) in list(found.items()):
        if pieces and re.fullmatch("<0x[0-9A-F]{2}>", piece):
            found[token_id] = (piece, _BYTE)
        elif pieces and piece == spec["model"].get("unk_token"):
            found[token_id] = (piece, _UNKNOWN)
    ids = range(max(num_tokens, max(found) + 1))
    listed = [found.get(token_id, (f"[PAD{token_id}]", _UNUSED)) for token_id in ids]
    return [token for token, _ in listed], [kind for _, kind in listed]


def _find_scores(spec: _Json, tokens: list[str]) -> list[float]:
    """The tokens that are merged first have the highest; runs of blanks have the lowest, if they are merged last."""
    made = list(dict.fromkeys(_join_merge(pair).replace(" ", "") for pair in spec["model"]["merges"]))
    scores = {token: -float(rank) for rank, token in enumerate(made)}
    if set(made[-1]) == {"▁"}:
        scores |= {token: -1e9 for token in made if set(token) == {"▁"}}
    return [scores.get(token, 0.0) for token in tokens]


def _join_merge(pair: str | list[str]) -> str:
    return pair if isinstance(pair, str) else " ".join(pair)


def _add_value(writer: gguf.GGUFWriter, key: str, value: _Json) -> None:
    writer.kv_data[0].pop(key, None)
    kinds = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}
    if value is not None:
        getattr(writer, f"add_{kinds[type(value)]}")(key, value)


def _order_rows(name: str, tensor: Array, config: dict[str, Any]) -> Array:
    """The rows of a query or key projection in llama.cpp's order: each head's two halves, alternating."""
    num_heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    heads = num_heads.get(name.split(".")[-2])
    if heads is None:
        return tensor
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, tensor.shape[1])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def _add_tensor(writer: gguf.GGUFWriter, name: str, tensor: Array, precision: Precision) -> None:
    if tensor.ndim == 1 or precision is Precision.F32:
        writer.add_tensor(name, tensor)
    elif precision is Precision.F16:
        writer.add_tensor(name, tensor.astype(np.float16))
    else:
        has_4_bits = precision is Precision.Q4_0 and not name.startswith("token_embd")
        kind = gguf.GGMLQuantizationType.Q4_0 if has_4_bits else gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
