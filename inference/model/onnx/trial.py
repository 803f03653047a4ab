"""A trial run of a new model: its logits must be those of the plain decoder in `reference`."""

from random import Random

import numpy as np
import numpy.typing as npt

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import Part
from inference.model.numpy_sampler import NumpyRow
from inference.model.onnx import reference
from inference.model.onnx.model import OnnxModel
from inference.model.onnx.precision import Precision
from inference.model.onnx.weights import Weights

_NUM_READ, _NUM_CHAIN = 6, 3  # tokens that are kept first, and tokens of the tree's chain
_PARENTS = (None, 0, None, 2, 2)  # of the tree's branches
_NUM_STORED = 2  # branches whose keys and values are stored, in a second pass

# Of the differences' root mean square, divided by the standard deviation of the row of logits.
_TOLERANCES = {Precision.FLOAT32: 1e-3, Precision.INT8: 0.15}


def check_model(model: OnnxModel, weights: Weights, precision: Precision) -> None:
    """Raises ModelError if the model computes other logits than the plain decoder.

    Reads some tokens, then a tree in one pass, and the same tree with stored keys and values in another.
    """
    config = model.config
    random = Random(0)
    text = [random.randrange(config.vocab_size) for _ in range(_NUM_READ + _NUM_CHAIN)]
    branch_ids = tuple(random.randrange(config.vocab_size) for _ in _PARENTS)
    with np.errstate(all="ignore"):  # what is infinite shows in the logits
        expected = reference.forward(config, weights, [*text, *branch_ids], *_lay_out())[_NUM_READ + _NUM_CHAIN - 1 :]
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
