"""Whether a model that was just loaded computes the same for a token in a tree as for the token in a text."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from inference.errors import ModelError
from inference.healing.token_tree import TokenTree
from inference.model.language_model import LanguageModel, SequenceInput

Logits = npt.NDArray[np.float32]  # [vocab_size]

_IDS = tuple(range(1, 8))
_START, _TREE = TokenTree(_IDS[:3]), TokenTree(_IDS[3:4], _IDS[4:], (None, 0, None))
_TEXTS = _IDS[:4], _IDS[:5], _IDS[:6], (*_IDS[:4], _IDS[6])


def check_tree_difference(difference: float, library: str, most: float = 0.1) -> None:
    """Raises ModelError if `measure_tree_difference` has found more than rounding, which gives `most`."""
    if not difference <= most:
        raise ModelError(f"{library} computes other logits for a token in a tree than in a text")


def measure_tree_difference(model: LanguageModel, read: Callable[[Sequence[int]], Logits] | None = None) -> float:
    """The greatest difference between the logits of a tree's nodes and those of the same tokens as a text.

    It is a share of the spread of the logits. `read`: those after a text by other means than the model's. Raises
    ModelError if they are the same for all tokens.
    """
    cache = model.new_cache(len(_IDS))
    model.forward([SequenceInput(cache, _START)])
    cache.keep(_START)
    in_tree = np.stack([row.to_host() for row in model.forward([SequenceInput(cache, _TREE)])[0]])
    in_texts = np.stack([(read or partial(_read, model))(text) for text in _TEXTS])
    is_token = np.isfinite(in_tree[0])  # the sampler hides the others
    in_tree, in_texts = in_tree[:, is_token], in_texts[:, is_token]
    spreads = in_texts.std(axis=1)
    if not spreads.all():
        raise ModelError("its logits are the same for all tokens, so its weights are not those of a trained model")
    return float(((in_tree - in_texts).std(axis=1) / spreads).max())


def _read(model: LanguageModel, text: Sequence[int]) -> Logits:
    part = SequenceInput(model.new_cache(len(text)), TokenTree(tuple(text)))
    [[row]] = model.forward([part])
    logits: Logits = row.to_host()
    return logits
