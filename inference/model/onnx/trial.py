"""A trial run of a new model: its logits must be those of a decoder in plain NumPy, which is short and slow."""

from random import Random

import numpy as np
import numpy.typing as npt

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Part
from inference.model.numpy_sampler import NumpyRow
from inference.model.onnx.decoder_config import DecoderConfig
from inference.model.onnx.model import OnnxModel
from inference.model.onnx.weights import EMBEDDINGS, FINAL_NORM, Precision, Weights, name_head, name_layer

Rows = npt.NDArray[np.float32]  # [num_rows, size]
_NUM_READ, _NUM_CHAIN = 6, 3  # tokens that are kept first, and tokens of the tree's chain
_PARENTS = (None, 0, None, 2, 2)  # of the tree's branches
_NUM_STORED = 2  # branches whose keys and values are stored, in a second pass

# Of the differences' root mean square, divided by the standard deviation of the row of logits.
_TOLERANCES = {Precision.FLOAT32: 1e-3, Precision.INT8: 0.15}


def _forward_plainly(
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


def check_model(model: OnnxModel, weights: Weights, precision: Precision) -> None:
    """Raises ModelError if the model computes other logits than the plain decoder.

    Reads some tokens, then a tree in one pass, and the same tree with stored keys and values in another.
    """
    config = model.config
    random = Random(0)
    text = [random.randrange(config.vocab_size) for _ in range(_NUM_READ + _NUM_CHAIN)]
    branch_ids = tuple(random.randrange(config.vocab_size) for _ in _PARENTS)
    with np.errstate(all="ignore"):  # what is infinite shows in the logits
        expected = _forward_plainly(config, weights, [*text, *branch_ids], *_lay_out())[_NUM_READ + _NUM_CHAIN - 1 :]
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
    cache.keep(read, None)
    tree = TokenTree(tuple(text[_NUM_READ:]), branch_ids, _PARENTS)
    rows = model.forward([Part(cache, tree)])[0]
    stored = cache.copy_branches(tree)[:_NUM_STORED]
    cache.keep(tree, None)
    return rows + model.forward([Part(cache, TokenTree((), branch_ids, _PARENTS), tuple(stored))])[0]


def _lay_out() -> tuple[list[int], npt.NDArray[np.bool_]]:
    """The positions of text and branches, and the rows that each sees."""
    tree = TokenTree((), (0,) * len(_PARENTS), _PARENTS)
    num_text = _NUM_READ + _NUM_CHAIN
    positions = [*range(num_text), *(num_text - 1 + depth for depth in tree.find_depths())]
    visible = np.tri(len(positions), dtype=np.bool_)
    visible[num_text:, num_text:] = False
    for branch in range(len(_PARENTS)):
        visible[num_text + branch, [num_text + ancestor for ancestor in tree.iter_path(branch)]] = True
    return positions, visible
