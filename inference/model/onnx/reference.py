"""A decoder in plain NumPy: short and slow, and the measure of the runner when a model is loaded for the first time."""

import numpy as np
import numpy.typing as npt

from inference.model.onnx.decoder_config import DecoderConfig
from inference.model.onnx.weights import EMBEDDINGS, FINAL_NORM, Weights, name_head, name_layer

Rows = npt.NDArray[np.float32]  # [num_rows, size]


def forward(
    config: DecoderConfig, weights: Weights, token_ids: list[int], positions: list[int], visible: npt.NDArray[np.bool_]
) -> Rows:
    """The next-token logits after each row, [num_rows, vocab_size].

    `visible`: [num_rows, num_rows], for each row the rows that it sees, among them itself.
    """
    angles = np.array(positions, np.float32)[:, None] * config.rotary.frequencies
    hidden = weights.read(f"{EMBEDDINGS}.weight")[token_ids]
    for layer in range(config.num_layers):
        path = name_layer(layer)
        normed = _normalize(config, weights, f"{path}.input_layernorm", hidden)
        hidden = hidden + _attend(config, weights, f"{path}.self_attn", normed, angles, visible)
        normed = _normalize(config, weights, f"{path}.post_attention_layernorm", hidden)
        gate = _apply(weights, f"{path}.mlp.gate_proj", normed, config.has_ffn_bias)
        up = _apply(weights, f"{path}.mlp.up_proj", normed, config.has_ffn_bias)
        inner = gate / (1 + np.exp(-gate)) * up
        hidden = hidden + _apply(weights, f"{path}.mlp.down_proj", inner, config.has_ffn_bias)
    return _apply(weights, name_head(config), _normalize(config, weights, FINAL_NORM, hidden), False)


def _normalize(config: DecoderConfig, weights: Weights, path: str, hidden: Rows) -> Rows:
    mean_squares = np.mean(hidden**2, axis=1, keepdims=True)
    normed: Rows = hidden / np.sqrt(mean_squares + np.float32(config.norm_epsilon))
    return normed * weights.read(f"{path}.weight")


def _apply(weights: Weights, path: str, rows: Rows, has_bias: bool) -> Rows:
    product: Rows = rows @ weights.read(f"{path}.weight").T
    return product + weights.read(f"{path}.bias") if has_bias else product


def _attend(
    config: DecoderConfig, weights: Weights, path: str, rows: Rows, angles: Rows, visible: npt.NDArray[np.bool_]
) -> Rows:
    num_rows, head_dim = len(rows), config.head_dim
    queries, keys, values = (
        _apply(weights, f"{path}.{part}_proj", rows, config.has_qkv_bias).reshape(num_rows, -1, head_dim)
        for part in "qkv"
    )
    queries, keys = _turn(queries, angles), _turn(keys, angles)
    heads = []
    for head in range(config.num_heads):
        shared = head // config.num_heads_per_kv
        scores = queries[:, head] @ keys[:, shared].T / np.sqrt(np.float32(head_dim))
        scores = np.where(visible, scores, -np.inf)
        probs = np.exp(scores - scores.max(axis=1, keepdims=True))
        heads.append(probs / probs.sum(axis=1, keepdims=True) @ values[:, shared])
    return _apply(weights, f"{path}.o_proj", np.concatenate(heads, axis=1), config.has_output_bias)


def _turn(vectors: npt.NDArray[np.float32], angles: Rows) -> npt.NDArray[np.float32]:
    """Turns each pair of numbers, one from each half of a vector, by its angle."""
    first, second = np.split(vectors, 2, axis=2)
    cosines, sines = np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=2)
