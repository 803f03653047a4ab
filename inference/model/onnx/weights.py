"""The tensors of a model folder's safetensors files, checked against the configuration, and their form of 8 bits."""

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Any, Self

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from inference.errors import ModelError
from inference.model.onnx.decoder_config import DecoderConfig
from inference.model_folder import find_weight_files

BLOCK_SIZE = 32  # weights that share a scale
_MAX_CODE = 255
_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
_BUFFER = re.compile(r"(.*\.)?rotary_emb\.inv_freq")  # in old files; computed from the configuration
_NUM_NAMED = 3  # tensors in a message

EMBEDDINGS = "model.embed_tokens"
FINAL_NORM = "model.norm"
HEAD = "lm_head"

Array = npt.NDArray[Any]


class Precision(Enum):
    """How the weights are stored. Attention, norms and sums are float32 in any case."""

    FLOAT32 = "float32"
    INT8 = "int8"  # 8 bits, a scale and a zero point for each block of a row


def quantize(
    weights: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Weights as 8-bit codes: `weight = (code - zero point) * scale`, for each block of a row.

    `weights`: [num_outputs, num_inputs]. Returns codes [num_outputs, num_blocks, BLOCK_SIZE], scales and zero points
    [num_outputs, num_blocks]. The last block is filled up with zeros.
    """
    num_outputs, num_inputs = weights.shape
    blocks = np.zeros((num_outputs, count_blocks(num_inputs), BLOCK_SIZE), np.float32)
    blocks.reshape(num_outputs, -1)[:, :num_inputs] = weights
    low = np.minimum(blocks.min(axis=2), 0)  # zero has a code of its own
    scales = (np.maximum(blocks.max(axis=2), 0) - low) / _MAX_CODE
    scales[scales == 0] = 1
    zero_points = np.rint(-low / scales)
    codes = np.rint(blocks / scales[..., None]) + zero_points[..., None]
    return codes.clip(0, _MAX_CODE).astype(np.uint8), scales, zero_points.astype(np.uint8)


def count_blocks(num_inputs: int) -> int:
    """The number of blocks in a row of weights."""
    return -(-num_inputs // BLOCK_SIZE)


class Weights:
    """The tensors of a decoder, read one by one. A context manager, which closes the files."""

    def __init__(self, folder: Path, config: DecoderConfig) -> None:
        """Opens the files. Raises ModelError if tensors are missing, unknown or of another shape."""
        self.paths = find_weight_files(folder)
        self._stack = ExitStack()
        self._files: dict[str, Any] = {}  # tensor -> open file, which has no types
        try:
            for path in self.paths:
                file = self._stack.enter_context(_open(path))
                self._files |= dict.fromkeys(file.keys(), file)
            self._check(config)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def find_dtype(self, name: str) -> np.dtype[Any]:
        """The type in which a tensor is stored."""
        return _DTYPES[self._files[name].get_slice(name).get_dtype()]

    def find_shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(self._files[name].get_slice(name).get_shape())

    def read_raw(self, name: str) -> Array:
        """A tensor as it is stored."""
        array: Array = self._files[name].get_tensor(name)
        return array

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor as float32, which is exact for all types that are read."""
        return self.read_raw(name).astype(np.float32)

    def _check(self, config: DecoderConfig) -> None:
        shapes = dict(iter_shapes(config))
        head = f"{HEAD}.weight"
        known = {name for name in self._files if _BUFFER.fullmatch(name) is None}
        missing, strange = sorted(shapes.keys() - known), sorted(known - shapes.keys() - {head})
        if missing:
            raise ModelError(f"its files lack the weights {_name(missing)}; download the model again")
        if strange:
            raise ModelError(f"its files have the weights {_name(strange)}, which are not known here")
        if head in known:
            shapes[head] = (config.vocab_size, config.hidden_size)
        for name, shape in shapes.items():
            part = self._files[name].get_slice(name)
            if part.get_dtype() not in _DTYPES:
                raise ModelError(f"the weights {name} are of the type {part.get_dtype()}, which is not known here")
            if tuple(part.get_shape()) != shape:
                raise ModelError(f"the weights {name} have the shape {part.get_shape()}, and not {list(shape)}")
        if config.ties_embeddings and head in known:
            embeddings = f"{EMBEDDINGS}.weight"
            if not np.array_equal(self.read(head), self.read(embeddings)):
                raise ModelError(f"{head} is not {embeddings}, as tie_word_embeddings in its config.json says")


def iter_shapes(config: DecoderConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The name and shape of each tensor that the decoder needs."""
    size, ffn = config.hidden_size, config.ffn_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield f"{EMBEDDINGS}.weight", (config.vocab_size, size)
    for layer in range(config.num_layers):
        path = name_layer(layer)
        yield f"{path}.input_layernorm.weight", (size,)
        yield f"{path}.post_attention_layernorm.weight", (size,)
        for name, rows in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            yield from _iter_linear(f"{path}.self_attn.{name}", rows, size, has_bias=config.has_qkv_bias)
        yield from _iter_linear(f"{path}.self_attn.o_proj", size, queries, has_bias=config.has_output_bias)
        for name in ("gate_proj", "up_proj"):
            yield from _iter_linear(f"{path}.mlp.{name}", ffn, size, has_bias=config.has_ffn_bias)
        yield from _iter_linear(f"{path}.mlp.down_proj", size, ffn, has_bias=config.has_ffn_bias)
    yield f"{FINAL_NORM}.weight", (size,)
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


def _open(path: Path) -> Any:  # safetensors has no types
    try:
        return safe_open(path, "numpy")
    except (SafetensorError, OSError):
        raise ModelError(f"{path.name} is damaged; download the model again") from None


def _name(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
    return ", ".join(names[:_NUM_NAMED]) + more
