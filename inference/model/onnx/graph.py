"""The ONNX graph of a decoder: token ids, positions, stored keys and values in, next-token logits out.

The graph forwards the new rows of one sequence. Its inputs:

    token_ids, positions   [1, num_rows] int64
    cosines, sines         [num_positions, head_dim / 2] float32, at least as many as there are keys
    bias                   [1, 1, num_rows, num_keys] float32, added to the attention scores: 0, or HIDDEN for a key
                           that the row must not see. No row sees those after it
    last_key               [1] int32, num_keys - 1
    num_keys               [] int32, the stored rows and the new ones
    wanted_rows            [num_wanted] int64, the rows whose logits are computed
    past_<n>               [1, num_kv_heads, capacity, head_dim] float32, for each layer its keys (even n), its values

Outputs are `logits`, [1, num_wanted, vocab_size] float32, and `present_<n>`. Bind these to the memory of `past_<n>`:
attention then writes the new rows' keys and values after the stored ones, and copies nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper

from inference.model.onnx.decoder_config import DecoderConfig
from inference.model.onnx.weights import (
    BLOCK_SIZE,
    EMBEDDINGS,
    FINAL_NORM,
    Precision,
    Weights,
    count_blocks,
    name_head,
    name_layer,
    quantize,
)

HIDDEN = float(np.finfo(np.float32).min) / 2  # a score of this size has the probability 0
CONSTANTS_VERSION = 1  # increase it when other constants are computed from the same weights

_MICROSOFT = "com.microsoft"
_OPSETS = {"": 21, _MICROSOFT: 1}
_IR_VERSION = 10
_ACCURACY_LEVEL = 4  # of products with weights of few bits: the inputs are rounded to 8, each row by itself
_ATTENTION_INPUTS = ("last_key", "num_keys", "cosines", "sines", "positions", "bias")
_PLAIN_INPUTS = ("last_key", "num_keys", "", "", "", "bias")  # without rotary positions
_ALIGNMENT = 4096  # of constants in their file, so that it can be mapped

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a graph, outside of it. Its bytes are at `offset` of the file of all constants."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    @property
    def num_bytes(self) -> int:
        """The size of its bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Graph:
    """The graph of a decoder. Its constants are read from the model folder one after the other."""

    model: ModelProto
    groups: Sequence[tuple[tuple[Constant, ...], Callable[[], Sequence[Array]]]]  # constants that are read together


def build_graph(config: DecoderConfig, weights: Weights, precision: Precision, file_name: str) -> Graph:
    """The graph of a decoder with these weights. `file_name`: where the graph says that its constants are."""
    builder = _Builder(config, weights, precision)
    builder.add_decoder()
    return Graph(builder.build_model(file_name), builder.groups)


def build_graph_model(
    nodes: Sequence[NodeProto], inputs: dict[str, Any], outputs: dict[str, Any], constants: Sequence[TensorProto]
) -> ModelProto:
    """A model of these nodes. Inputs and outputs: type and shape, by name."""
    graph = helper.make_graph(
        nodes,
        "decoder",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        constants,
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def build_product(inputs: Sequence[str], output: str, num_inputs: int, size: int, num_bits: int) -> NodeProto:
    """The product of rows with weights of few bits. `inputs`: the rows, and what `quantize` makes of the weights."""
    return helper.make_node(
        "MatMulNBits",
        inputs,
        [output],
        domain=_MICROSOFT,
        K=num_inputs,
        N=size,
        bits=num_bits,
        block_size=BLOCK_SIZE,
        accuracy_level=_ACCURACY_LEVEL,
    )


@dataclass(slots=True)
class _Builder:
    """Collects nodes and constants. Values are known by their names."""

    config: DecoderConfig
    weights: Weights
    precision: Precision
    nodes: list[NodeProto] = field(default_factory=list)
    groups: list[tuple[tuple[Constant, ...], Callable[[], Sequence[Array]]]] = field(default_factory=list)
    end: int = 0  # of the file of constants

    def add_decoder(self) -> None:
        """Adds all layers, from token ids to logits."""
        config = self.config
        hidden = self._add_scaled(self._add_embeddings(), config.embedding_scale)
        for layer in range(config.num_layers):
            path = name_layer(layer)
            hidden = self._add_part(path, "input_layernorm", hidden, partial(self._add_attention, layer))
            hidden = self._add_part(path, "post_attention_layernorm", hidden, self._add_ffn)
        wanted = self._add_node("Gather", [hidden, "wanted_rows"], "wanted", axis=1)
        normed = self._add_scaled(self._add_norm(FINAL_NORM, wanted), config.logits_scale)
        self._add_linear([name_head(config)], config.vocab_size, normed, "logits", has_bias=False)

    def build_model(self, file_name: str) -> ModelProto:
        """The model of all nodes, with the constants outside of it."""
        config = self.config
        planes = [1, config.num_kv_heads, "capacity", config.head_dim]
        inputs: dict[str, Any] = {
            "token_ids": (TensorProto.INT64, [1, "num_rows"]),
            "positions": (TensorProto.INT64, [1, "num_rows"]),
            "cosines": (TensorProto.FLOAT, ["num_positions", config.head_dim // 2]),
            "sines": (TensorProto.FLOAT, ["num_positions", config.head_dim // 2]),
            "bias": (TensorProto.FLOAT, [1, 1, "num_rows", "num_keys"]),
            "last_key": (TensorProto.INT32, [1]),
            "num_keys": (TensorProto.INT32, []),
            "wanted_rows": (TensorProto.INT64, ["num_wanted"]),
        }
        outputs: dict[str, Any] = {"logits": (TensorProto.FLOAT, [1, "num_wanted", config.vocab_size])}
        for plane in range(2 * config.num_layers):
            inputs[f"past_{plane}"] = outputs[f"present_{plane}"] = (TensorProto.FLOAT, planes)
        constants = [_refer(constant, file_name) for constants, _ in self.groups for constant in constants]
        return build_graph_model(self.nodes, inputs, outputs, constants)

    def _add_embeddings(self) -> str:
        name = f"{EMBEDDINGS}.weight"
        dtype = self.weights.find_dtype(name)  # half of the memory if the file is in half precision
        shape = (self.config.vocab_size, self.config.hidden_size)
        self._add_group([("embeddings", shape, dtype)], lambda: [self.weights.read_raw(name)])
        rows = self._add_node("Gather", ["embeddings", "token_ids"], "embedded", axis=0)
        return self._add_node("Cast", [rows], "hidden", to=TensorProto.FLOAT)

    def _add_part(self, path: str, norm: str, hidden: str, add: Callable[[str, str], str]) -> str:
        """Attention or the feed-forward network of the layer at `path`, added to what comes in."""
        is_after, norm = self.config.family.norms_after, f"{path}.{norm}"
        out = add(path, hidden if is_after else self._add_norm(norm, hidden))
        out = self._add_norm(norm, out) if is_after else out
        out = self._add_scaled(out, self.config.residual_scale)
        return self._add_node("Add", [hidden, out], f"{norm}.sum")

    def _add_attention(self, layer: int, path: str, value: str) -> str:
        config, path = self.config, f"{path}.self_attn"
        sizes = [num_heads * config.head_dim for num_heads in (config.num_heads, *[config.num_kv_heads] * 2)]
        parts = [f"{path}.{part}_proj" for part in "qkv"]
        packed = self._add_linear(parts, sum(sizes), value, f"{path}.qkv", has_bias=config.has_qkv_bias)
        queries = [packed, "", ""]
        if config.family.head_norms != "none":
            queries = [f"{path}.{part}" for part in ("q", "k", "v")]
            split = self._add_values(f"{path}.sizes", sizes)
            self.nodes.append(helper.make_node("Split", [packed, split], queries, axis=-1))
            queries[:2] = [self._add_head_norm(f"{path}.{part}_norm", f"{path}.{part}") for part in "qk"]
        is_plain = layer in config.plain_layers
        keys, values = 2 * layer, 2 * layer + 1
        attended = f"{path}.attended"
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [*queries, f"past_{keys}", f"past_{values}", *(_PLAIN_INPUTS if is_plain else _ATTENTION_INPUTS)],
                [attended, f"present_{keys}", f"present_{values}"],
                domain=_MICROSOFT,
                num_heads=config.num_heads,
                kv_num_heads=config.num_kv_heads,
                do_rotary=int(not is_plain),
                scale=config.attention_scale,
            )
        )
        size = config.hidden_size
        return self._add_linear([f"{path}.o_proj"], size, attended, f"{path}.out", has_bias=config.has_output_bias)

    def _add_head_norm(self, path: str, value: str) -> str:
        """A norm of as many numbers as it has factors, side by side."""
        [size] = self.weights.find_shape(f"{path}.weight")
        parts = self._add_node("Reshape", [value, self._add_values(f"{path}.parts", [0, 0, -1, size])], f"{path}.in")
        normed = self._add_norm(path, parts)
        return self._add_node("Reshape", [normed, self._add_values(f"{path}.row", [0, 0, -1])], f"{path}.rows")

    def _add_ffn(self, path: str, value: str) -> str:
        config, path = self.config, f"{path}.mlp"
        names = ("gate", "up") if config.family.has_gate else ("up",)
        gate, *up = (
            self._add_linear(
                [f"{path}.{name}_proj"], config.ffn_size, value, f"{path}.{name}", has_bias=config.has_ffn_bias
            )
            for name in names
        )
        if config.gelu is None:
            sigmoid = self._add_node("Sigmoid", [gate], f"{path}.sigmoid")
            active = self._add_node("Mul", [gate, sigmoid], f"{path}.silu")
        else:
            active = self._add_node("Gelu", [gate], f"{path}.gelu", approximate=config.gelu)
        inner = self._add_node("Mul", [active, *up], f"{path}.inner") if up else active
        size = config.hidden_size
        return self._add_linear([f"{path}.down_proj"], size, inner, f"{path}.out", has_bias=config.has_ffn_bias)

    def _add_norm(self, path: str, value: str) -> str:
        """A norm over the last axis, which has as many numbers as there are factors."""
        family = self.config.family
        names = [f"{path}.weight", f"{path}.bias"] if family.has_layer_norm else [f"{path}.weight"]
        for name, offset in zip(names, (family.norm_offset, 0), strict=False):
            self._add_group(
                [(name, self.weights.find_shape(name), np.dtype(np.float32))],
                partial(lambda name, offset: [self.weights.read(name) + np.float32(offset)], name, offset),
            )
        kind = "LayerNormalization" if family.has_layer_norm else "SimplifiedLayerNormalization"
        return self._add_node(kind, [value, *names], f"{path}.out", axis=-1, epsilon=self.config.norm_epsilon)

    def _add_scaled(self, value: str, scale: float) -> str:
        if scale == 1:
            return value
        factor = self._add_node("Constant", [], f"{value}.scale", value_float=scale)
        return self._add_node("Mul", [value, factor], f"{value}.scaled")

    def _add_values(self, name: str, values: Sequence[int]) -> str:
        return self._add_node("Constant", [], name, value_ints=values)

    def _add_linear(self, paths: Sequence[str], size: int, value: str, output: str, *, has_bias: bool) -> str:
        """Products with the weights of some modules, side by side; `size` numbers for each row."""
        product = f"{output}.product" if has_bias else output
        if self.precision is Precision.FLOAT32:
            self._add_plain(paths, size, value, product)
        else:
            self._add_quantized(paths, size, value, product)
        if not has_bias:
            return product
        biases = f"{output}.bias"
        self._add_group(
            [(biases, (size,), np.dtype(np.float32))],
            lambda: [np.concatenate([self.weights.read(f"{path}.bias") for path in paths])],
        )
        return self._add_node("Add", [product, biases], output)

    def _add_plain(self, paths: Sequence[str], size: int, value: str, output: str) -> None:
        name = f"{output}.weight"
        num_inputs = self.weights.find_shape(f"{paths[0]}.weight")[1]
        self._add_group(
            [(name, (num_inputs, size), np.dtype(np.float32))],
            lambda: [np.ascontiguousarray(self._read_rows(paths).T)],
        )
        self._add_node("MatMul", [value, name], output)

    def _add_quantized(self, paths: Sequence[str], size: int, value: str, output: str) -> None:
        num_inputs = self.weights.find_shape(f"{paths[0]}.weight")[1]
        num_bits = 8 if output == "logits" else self.precision.num_bits  # fewer change too many choices there
        num_blocks = count_blocks(num_inputs)
        codes, scales, zeros = (f"{output}.{part}" for part in ("codes", "scales", "zeros"))
        byte = np.dtype(np.uint8)
        self._add_group(
            [
                (codes, (size, num_blocks, BLOCK_SIZE * num_bits // 8), byte),
                (scales, (size, num_blocks), np.dtype(np.float32)),
                (zeros, (size, -(-num_blocks * num_bits // 8)), byte),
            ],
            lambda: quantize(self._read_rows(paths), num_bits),
        )
        self.nodes.append(build_product([value, codes, scales, zeros], output, num_inputs, size, num_bits))

    def _read_rows(self, paths: Sequence[str]) -> npt.NDArray[np.float32]:
        parts = [self.weights.read(f"{path}.weight") for path in paths]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]  # of the head, a copy takes gigabytes

    def _add_node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def _add_group(
        self, infos: Sequence[tuple[str, tuple[int, ...], np.dtype[Any]]], read: Callable[[], Sequence[Array]]
    ) -> None:
        constants = []
        for name, shape, dtype in infos:
            constants.append(Constant(name, shape, dtype, self.end))
            self.end += -(-constants[-1].num_bytes // _ALIGNMENT) * _ALIGNMENT
        self.groups.append((tuple(constants), read))


def _refer(constant: Constant, file_name: str) -> TensorProto:
    """The constant as a reference to a file."""
    tensor = TensorProto(
        name=constant.name,
        dims=constant.shape,
        data_type=helper.np_dtype_to_tensor_dtype(constant.dtype),
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in (("location", file_name), ("offset", constant.offset), ("length", constant.num_bytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor
