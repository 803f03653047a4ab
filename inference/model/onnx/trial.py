"""A trial run of a new model: its logits must be those of a decoder in plain NumPy, which is short and slow."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Part
from inference.model.numpy_sampler import NumpyRow
from inference.model.onnx.decoder_config import DecoderConfig
from inference.model.onnx.graph import Array, Graph
from inference.model.onnx.model import OnnxModel
from inference.model.onnx.weights import EMBEDDINGS, FINAL_NORM, Precision, Weights, decode, name_head, name_layer

Rows = npt.NDArray[np.float32]  # [num_rows, size]
_NUM_READ, _NUM_CHAIN = 6, 3  # tokens that are kept first, and tokens of the tree's chain
_PARENTS = (None, 0, None, 2, 2)  # of the tree's branches
_NUM_STORED = 2  # branches whose keys and values are stored, in a second pass

# Of the differences' root mean square, divided by the standard deviation of the row of logits. Without relation: 1.4.
# With weights of few bits, the inputs of products are rounded to 8.
_TOLERANCES = {Precision.FLOAT32: 1e-3, Precision.INT8: 0.25, Precision.INT4: 0.25}  # seen: 1e-6, 0.04, 0.04


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """The weights with which a graph computes: those of few bits are what its constants stand for."""

    weights: Weights
    graph: Graph
    path: Path  # of the constants

    def read_raw(self, name: str) -> Array:
        """As `Weights.read_raw`."""
        return self.weights.read_raw(name)

    def read(self, name: str) -> Rows:
        """As `Weights.read`. Raises ModelError if they are not what was to be stored."""
        weights = self.weights.read(name)
        if name not in self.graph.places:
            return weights
        constants, start = self.graph.places[name]
        stored = (np.memmap(self.path, each.dtype, "r", each.offset, each.shape) for each in constants)
        return decode(weights, [each[start : start + len(weights)] for each in stored])


def _forward_plainly(config: DecoderConfig, weights: StoredWeights, tree: TokenTree) -> Rows:
    """The next-token logits after each row, [num_rows, vocab_size]."""
    token_ids, positions, visible = [*tree.chain_ids, *tree.branch_ids], tree.find_positions(), tree.build_mask()
    cosines, sines = (table[positions] for table in config.rotary.build_tables(max(positions) + 1))
    hidden = weights.read_raw(f"{EMBEDDINGS}.weight")[token_ids].astype(np.float32) * config.embedding_scale
    for layer in range(config.num_layers):
        path = name_layer(layer)
        angles = (np.ones(1, np.float32), np.zeros(1, np.float32)) if layer in config.plain_layers else (cosines, sines)
        attend = partial(_attend, config, weights, f"{path}.self_attn", partial(_turn, *angles), visible)
        hidden = hidden + _run_part(config, weights, f"{path}.input_layernorm", hidden, attend)
        activate = partial(_activate, config, weights, f"{path}.mlp")
        hidden = hidden + _run_part(config, weights, f"{path}.post_attention_layernorm", hidden, activate)
    normed = _normalize(config, weights, FINAL_NORM, hidden)
    return _apply(weights, name_head(config), normed, False) * np.float32(config.logits_scale)


def _run_part(
    config: DecoderConfig, weights: StoredWeights, norm: str, hidden: Rows, run: Callable[[Rows], Rows]
) -> Rows:
    if config.family.norms_after:
        out = _normalize(config, weights, norm, run(hidden))
    else:
        out = run(_normalize(config, weights, norm, hidden))
    return out * np.float32(config.residual_scale)


def _normalize(config: DecoderConfig, weights: StoredWeights, path: str, rows: Rows) -> Rows:
    """A norm of the numbers of the last axis, as many together as there are factors."""
    factors, family = weights.read(f"{path}.weight"), config.family
    parts = rows.reshape(len(rows), -1, len(factors))
    if family.has_layer_norm:
        parts = parts - parts.mean(axis=2, keepdims=True)
    scales = np.sqrt(np.mean(parts**2, axis=2, keepdims=True) + np.float32(config.norm_epsilon))
    normed: Rows = parts / scales * (factors + np.float32(family.norm_offset))
    return (normed + weights.read(f"{path}.bias") if family.has_layer_norm else normed).reshape(rows.shape)


def _apply(weights: StoredWeights, path: str, rows: Rows, has_bias: bool) -> Rows:
    product: Rows = rows @ weights.read(f"{path}.weight").T
    return product + weights.read(f"{path}.bias") if has_bias else product


def _activate(config: DecoderConfig, weights: StoredWeights, path: str, rows: Rows) -> Rows:
    """The feed-forward network."""
    inner = up = _apply(weights, f"{path}.up_proj", rows, config.has_ffn_bias)
    if config.family.has_gate:
        inner = _apply(weights, f"{path}.gate_proj", rows, config.has_ffn_bias)
    if config.gelu is None:
        inner = inner / (1 + np.exp(-inner))
    elif config.gelu == "tanh":
        inner = inner * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3))) / 2
    else:
        inner = inner * (1 + np.vectorize(math.erf, [np.float32])(inner / math.sqrt(2))) / 2
    return _apply(weights, f"{path}.down_proj", inner * up if config.family.has_gate else inner, config.has_ffn_bias)


def _attend(
    config: DecoderConfig,
    weights: StoredWeights,
    path: str,
    turn: Callable[[Rows], Rows],
    visible: npt.NDArray[np.bool_],
    rows: Rows,
) -> Rows:
    queries, keys, values = (_apply(weights, f"{path}.{part}_proj", rows, config.has_qkv_bias) for part in "qkv")
    if config.family.head_norms != "none":
        queries = _normalize(config, weights, f"{path}.q_norm", queries)
        keys = _normalize(config, weights, f"{path}.k_norm", keys)
    queries, keys, values = (part.reshape(len(rows), -1, config.head_dim) for part in (queries, keys, values))
    keys, values = (part.repeat(config.num_heads // config.num_kv_heads, axis=1) for part in (turn(keys), values))
    scores = np.einsum("qhd,khd->hqk", turn(queries), keys) * np.float32(config.attention_scale)
    scores = np.where(visible, scores, -np.inf)
    probs = np.exp(scores - scores.max(axis=2, keepdims=True))
    attended = np.einsum("hqk,khd->qhd", probs / probs.sum(axis=2, keepdims=True), values)
    return _apply(weights, f"{path}.o_proj", attended.reshape(len(rows), -1), config.has_output_bias)


def _turn(cosines: Rows, sines: Rows, vectors: Rows) -> Rows:
    """Turns each pair of numbers, one from each half of a vector, by its angle."""
    first, second = np.split(vectors, 2, axis=2)
    cosines, sines = cosines[:, None], sines[:, None]
    return np.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=2)


def check_model(model: OnnxModel, weights: StoredWeights, precision: Precision) -> None:
    """Raises ModelError if the model computes other logits than the plain decoder.

    Reads some tokens, then a tree in one pass, and the same tree with stored keys and values in another.
    """
    config = model.config
    random = Random(0)
    text = [random.randrange(config.vocab_size) for _ in range(_NUM_READ + _NUM_CHAIN)]
    branch_ids = tuple(random.randrange(config.vocab_size) for _ in _PARENTS)
    with np.errstate(all="ignore"):  # what is infinite shows in the logits
        expected = _forward_plainly(config, weights, TokenTree(tuple(text), branch_ids, _PARENTS))[len(text) - 1 :]
    if not np.isfinite(expected).all():
        raise ModelError("its logits are infinite or no numbers, so its weights are damaged")
    if (expected.std(axis=1) == 0).any():
        raise ModelError("its logits are the same for all tokens, so its weights are not those of a trained model")
    actual = np.array([row.logits for row in _run(model, text, branch_ids)])
    is_token = np.isfinite(actual[0])  # the sampler hides the others
    actual = actual[:, is_token]
    expected = np.concatenate([expected, expected[1 + _NUM_STORED :]])[:, is_token]
    differences = np.sqrt(np.mean((actual - expected) ** 2, axis=1)) / expected.std(axis=1)
    tolerance = _TOLERANCES[precision]
    if not differences.max() <= tolerance:
        raise ModelError(
            f"in {precision.value}, onnxruntime computes other logits than a plain decoder: they differ by "
            f"{differences.max():.1g} of their spread, where {tolerance:.1g} is allowed"
        )


def _run(model: OnnxModel, text: list[int], branch_ids: tuple[int, ...]) -> list[NumpyRow]:
    cache = model.new_cache(len(text) + len(branch_ids))
    read = TokenTree(tuple(text[:_NUM_READ]))
    model.forward([Part(cache, read, wants_logits=False)])
    cache.keep(read)
    tree = TokenTree(tuple(text[_NUM_READ:]), branch_ids, _PARENTS)
    rows = model.forward([Part(cache, tree)])[0]
    stored = cache.copy_branches(tree)[:_NUM_STORED]
    cache.keep(tree)
    return rows + model.forward([Part(cache, TokenTree((), branch_ids, _PARENTS), tuple(stored))])[0]
