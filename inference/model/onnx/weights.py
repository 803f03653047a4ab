"""The tensors of a model folder's safetensors files, checked against the configuration, and their forms of few bits."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from inference.errors import ModelError, name_some, refuse
from inference.model.onnx.decoder_config import DecoderConfig, Family
from inference.model_folder import find_weight_files

BLOCK_SIZE = 128  # weights that share a scale; with half as many, 4 bits lose little less and take a third more time
_NUM_ROWS = 256  # of weights that are converted together: a processor's cache has room for them
_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
_BUFFER = re.compile(r"(.*\.)?rotary_emb\.inv_freq")  # in old files; computed from the configuration
_LAYER = re.compile(r"(model\.layers\.\d+\.)(.*)(\.\w+)")
_TURNED = re.compile(r".*\.[qk]_proj\.\w+")

EMBEDDINGS = "model.embed_tokens"
FINAL_NORM = "model.norm"
HEAD = "lm_head"

Array = npt.NDArray[Any]


class Precision(Enum):
    """How the weights are stored. Attention, norms and sums are float32 in any case."""

    FLOAT32 = "float32"
    INT8 = "int8"  # 8 bits, a scale and a zero point for each block of a row
    INT4 = "int4"  # the same with 4 bits

    @property
    def num_bits(self) -> int:
        """Of a weight."""
        return {Precision.FLOAT32: 32, Precision.INT8: 8, Precision.INT4: 4}[self]


def quantize(weights: npt.NDArray[np.float32], num_bits: int) -> list[Array]:
    """Weights as codes of 8 or 4 bits: `weight = (code - zero point) * scale`, for each block of a row.

    `weights`: [num_outputs, num_inputs]. Returns codes [num_outputs, num_blocks, block size], scales and zero points
    [num_outputs, num_blocks]. The last block is filled up with zeros. Of codes and zero points with 4 bits, two are in
    a byte, the first in its lower half.
    """
    starts = range(0, len(weights), _NUM_ROWS)
    parts = [_quantize_rows(weights[start : start + _NUM_ROWS], num_bits) for start in starts]
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


def _quantize_rows(weights: npt.NDArray[np.float32], num_bits: int) -> tuple[Array, Array, Array]:
    num_outputs, num_inputs = weights.shape
    blocks = np.zeros((num_outputs, count_blocks(num_inputs), BLOCK_SIZE), np.float32)
    blocks.reshape(num_outputs, -1)[:, :num_inputs] = weights
    low = np.minimum(blocks.min(axis=2), 0)  # zero has a code of its own
    scales = (np.maximum(blocks.max(axis=2), 0) - low) / (2**num_bits - 1)
    scales[scales == 0] = 1
    zero_points = np.rint(-low / scales)
    codes = np.rint(blocks / scales[..., None]) + zero_points[..., None]
    pack = _pack if num_bits == 4 else np.ndarray.copy
    return pack(codes.clip(0, 2**num_bits - 1).astype(np.uint8)), scales, pack(zero_points.astype(np.uint8))


def _pack(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Two codes in a byte, the first in its lower half; the last may be alone."""
    packed = codes[..., ::2].copy()
    packed[..., : codes.shape[-1] // 2] += codes[..., 1::2] * np.uint8(16)
    return packed


def count_blocks(num_inputs: int) -> int:
    """The number of blocks in a row of weights."""
    return -(-num_inputs // BLOCK_SIZE)


class Weights:
    """The tensors of a decoder, read one by one. The files are open as long as it exists."""

    def __init__(self, folder: Path, config: DecoderConfig) -> None:
        """Opens the files. Raises ModelError if tensors are missing, unknown or of another shape."""
        self.paths = find_weight_files(folder)
        self._config = config
        self._files: dict[str, Any] = {}  # tensor -> open file, which has no types
        self._places = _find_places(config)
        for path in self.paths:
            file = _open(path)
            self._files |= dict.fromkeys(file.keys(), file)
        self._check()

    def find_dtype(self, name: str) -> np.dtype[Any]:
        """The type in which a tensor is stored."""
        return _DTYPES[self._open_slice(self._places[name].stored_name).get_dtype()]

    def find_shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self._places[name].shape

    def read_raw(self, name: str) -> Array:
        """A tensor in the type in which it is stored."""
        place, head_dim = self._places[name], self._config.head_dim
        array: Array = self._open_slice(place.stored_name)[place.start : place.start + place.shape[0]]
        if _TURNED.fullmatch(name) is None or self._config.rotary.num_turned == head_dim:
            return array
        heads = array.reshape(-1, head_dim, *place.shape[1:])
        return heads[:, self._config.rotary.list_order()].reshape(place.shape)

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor as float32, which is exact for all types that are read."""
        return self.read_raw(name).astype(np.float32)

    def _open_slice(self, stored_name: str) -> Any:  # safetensors has no types
        return self._files[stored_name].get_slice(stored_name)

    def _check(self) -> None:
        shapes = {
            place.stored_name: (place.start + place.shape[0], *place.shape[1:]) for place in self._places.values()
        }
        head, embeddings = f"{HEAD}.weight", f"{EMBEDDINGS}.weight"
        known = {name for name in self._files if _BUFFER.fullmatch(name) is None}
        missing, strange = sorted(shapes.keys() - known), sorted(known - shapes.keys() - {head})
        refuse(
            ModelError,
            {
                f"its files lack the weights {name_some(missing)}; download the model again": missing,
                f"its files have the weights {name_some(strange)}, which are not known here": strange,
            },
        )
        if head in known:
            shapes[head] = shapes[embeddings]
        for name, shape in shapes.items():
            part = self._open_slice(name)
            dtype, found = part.get_dtype(), part.get_shape()
            refuse(
                ModelError,
                {
                    f"the weights {name} are of the type {dtype}, which is not known here": dtype not in _DTYPES,
                    f"the weights {name} have the shape {found}, and not {list(shape)}": tuple(found) != shape,
                },
            )
        if self._config.ties_embeddings and head in known:
            tensors = (self._open_slice(name)[:] for name in (head, embeddings))
            if not np.array_equal(*tensors):
                raise ModelError(f"{head} is not {embeddings}, as tie_word_embeddings in its config.json says")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor is: rows of a tensor in the files."""

    stored_name: str
    start: int
    shape: tuple[int, ...]


def _find_places(config: DecoderConfig) -> dict[str, _Place]:
    """The place of each tensor that the decoder needs. Those of one name in the files are rows, one after the other."""
    places: dict[str, _Place] = {}
    num_rows: Counter[str] = Counter()
    for name, shape in iter_shapes(config):
        layer, names = _LAYER.fullmatch(name), config.family.stored_names
        stored_name = f"{layer[1]}{names.get(layer[2], layer[2])}{layer[3]}" if layer else name
        places[name] = _Place(stored_name, num_rows[stored_name], shape)
        num_rows[stored_name] += shape[0]
    return places


def iter_shapes(config: DecoderConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The name and shape of each tensor that the decoder needs, named as those of Llama."""
    size, ffn, family = config.hidden_size, config.ffn_size, config.family
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield f"{EMBEDDINGS}.weight", (config.vocab_size, size)
    for layer in range(config.num_layers):
        path = name_layer(layer)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield from _iter_norm(f"{path}.{name}", size, family)
        for name, rows in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            yield from _iter_linear(f"{path}.self_attn.{name}", rows, size, has_bias=config.has_qkv_bias)
        for name, rows in (("q_norm", queries), ("k_norm", keys)) if family.head_norms != "none" else ():
            yield f"{path}.self_attn.{name}.weight", (config.head_dim if family.head_norms == "each" else rows,)
        yield from _iter_linear(f"{path}.self_attn.o_proj", size, queries, has_bias=config.has_output_bias)
        for name in ("gate_proj", "up_proj") if family.has_gate else ("up_proj",):
            yield from _iter_linear(f"{path}.mlp.{name}", ffn, size, has_bias=config.has_ffn_bias)
        yield from _iter_linear(f"{path}.mlp.down_proj", size, ffn, has_bias=config.has_ffn_bias)
    yield from _iter_norm(FINAL_NORM, size, family)
    if not config.ties_embeddings:
        yield f"{HEAD}.weight", (config.vocab_size, size)


def name_layer(layer: int) -> str:
    """The common beginning of the names of a layer's tensors."""
    return f"model.layers.{layer}"


def name_head(config: DecoderConfig) -> str:
    """The module whose weights turn hidden states to logits."""
    return EMBEDDINGS if config.ties_embeddings else HEAD


def _iter_linear(path: str, rows: int, columns: int, *, has_bias: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{path}.weight", (rows, columns)
    if has_bias:
        yield f"{path}.bias", (rows,)


def _iter_norm(path: str, size: int, family: Family) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{path}.weight", (size,)
    if family.has_layer_norm:
        yield f"{path}.bias", (size,)


def _open(path: Path) -> Any:  # safetensors has no types
    try:
        return safe_open(path, "numpy")
    except (SafetensorError, OSError):
        raise ModelError(f"{path.name} is damaged; download the model again") from None
