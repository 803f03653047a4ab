"""For every sampler: the probabilities of the paths of a tree, and the branches that a choice still needs."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.errors import ModelError
from inference.model.language_model import SampleRequest


@dataclass(frozen=True, slots=True)
class PathLogProbs:
    """The probabilities of a tree's paths, for each node, the chain's end first.

    Naive form: forward all branches, score every crossing, take the best. But the path to a branch that was not
    forwarded has a probability already, from the row of its parent, and nothing beyond it can be more likely. So

    1. a crossing at such a branch is bounded by its path. If some token after a branch that was forwarded is more
       likely than the bound, the greedy choice needs no pass;
    2. if any token may follow there, the bound is the mass of the crossing: the probabilities of all tokens sum to one.
    """

    log_probs: dict[int | None, float]  # log P(path), or a bound if a row on the path is missing
    missing: dict[int | None, tuple[int, ...]]  # the branches of the path whose rows are missing, with the node itself


def find_row(node: int | None) -> int:
    """A node's index among the rows of its tree; the chain's end comes first."""
    return 0 if node is None else node + 1


def score_paths(request: SampleRequest, find_log_prob: Callable[[int, int], float]) -> PathLogProbs:
    """The weights of the request's nodes. `find_log_prob(row, token_id)`: log P(token) after a node with a row."""
    assert request.rows[0] is not None, "the chain's end is always forwarded"
    weights = PathLogProbs({None: 0.0}, {None: ()})
    for branch, (token_id, parent) in enumerate(zip(request.tree.branch_ids, request.tree.parents, strict=True)):
        above = find_row(parent)
        log_prob = 0.0 if request.rows[above] is None else find_log_prob(above, token_id)
        weights.log_probs[branch] = weights.log_probs[parent] + log_prob
        weights.missing[branch] = weights.missing[parent] + (() if request.rows[branch + 1] is not None else (branch,))
    return weights


def find_needed(request: SampleRequest, weights: PathLogProbs, best: float) -> tuple[int, ...]:
    """The missing branches that may change the choice, parents first. `best`: of the crossings that were scored."""
    needed: set[int] = set()
    for crossing in request.crossings:
        missing = weights.missing[crossing.node]
        if missing and not (request.wants_best and weights.log_probs[crossing.node] < best):
            needed.update(missing)
    return tuple(sorted(needed))


def sum_masses(weights: PathLogProbs, log_masses: Iterable[float]) -> float:
    """The logarithm of the mass of all crossings together: at most so much, where a row on a path is missing.

    `log_masses`: of the crossings whose paths were read. All crossings at and below a branch that is missing have no
    more mass than the path to it.
    """
    unread = [weights.log_probs[branch] for branch, missing in weights.missing.items() if missing == (branch,)]
    return log_sum_exp(np.array([*log_masses, *unread]))


def check_numbers(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same logits. Raises ModelError if some are infinite or NaN: a choice among them would be arbitrary."""
    with np.errstate(all="ignore"):
        sums = logits.sum(axis=-1)  # much faster than to ask each of them
    if not np.isfinite(sums).all():
        raise ModelError("the model's logits are infinite or NaN: its weights are damaged or too large")
    return logits


def log_sum_exp(logits: npt.NDArray[Any]) -> float:
    """The logarithm of the sum of the exponentials; -inf for no numbers."""
    greatest = logits.max(initial=-np.inf)
    if greatest == -np.inf:
        return -math.inf
    return float(greatest) + math.log(float(np.exp(logits - greatest).sum(dtype=np.float64)))
