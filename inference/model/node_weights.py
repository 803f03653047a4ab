"""The probabilities of a tree's paths, and which branches a choice needs that were not read yet.

Naive form: forward all branches, score every crossing, take the best. But the path to a branch that was not read has a
probability already, from the row of its parent, and nothing beyond it can be more likely. So

1. a crossing at such a branch is bounded by its path. If some token after a branch that was read is more likely than
   the bound, the greedy choice needs no pass;
2. if any token may follow there, the bound is the mass of the crossing: the probabilities of all tokens sum to one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from inference.healing.covering import Crossing
from inference.model.language_model import SampleRequest


@dataclass(frozen=True, slots=True)
class NodeWeights:
    """For each node, the chain's end first."""

    log_probs: list[float]  # log P(path), or a bound if a row on the path was not read
    unread: list[tuple[int, ...]]  # the branches of the path that were not read, with the node itself

    def find_log_prob(self, crossing: Crossing) -> float:
        """log P(path) of the crossing, or a bound."""
        return self.log_probs[find_row(crossing.node)]

    def find_unread(self, crossing: Crossing) -> tuple[int, ...]:
        """The branches that must be read before the crossing can be scored."""
        return self.unread[find_row(crossing.node)]


def find_row(node: int | None) -> int:
    """A node's index among the rows of its tree; the chain's end comes first."""
    return 0 if node is None else node + 1


def weigh_nodes(request: SampleRequest, find_log_prob: Callable[[int, int], float]) -> NodeWeights:
    """The weights of the request's nodes. `find_log_prob(row, token_id)`: log P(token) after a node that was read."""
    assert request.rows[0] is not None, "the chain's end is always read"
    weights = NodeWeights([0.0], [()])
    for branch, (token_id, parent) in enumerate(zip(request.tree.branch_ids, request.tree.parents, strict=True)):
        above = find_row(parent)
        log_prob = 0.0 if request.rows[above] is None else find_log_prob(above, token_id)
        weights.log_probs.append(weights.log_probs[above] + log_prob)
        weights.unread.append(weights.unread[above] + (() if request.rows[branch + 1] is not None else (branch,)))
    return weights


def find_needed(request: SampleRequest, weights: NodeWeights, best: float) -> tuple[int, ...]:
    """The unread branches that may change the choice, parents first. `best`: of the crossings that were scored."""
    needed: set[int] = set()
    for crossing in request.crossings:
        unread = weights.find_unread(crossing)
        if unread and not (request.wants_best and weights.find_log_prob(crossing) < best):
            needed.update(unread)
    return tuple(sorted(needed))
