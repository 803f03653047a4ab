"""How the probability is divided among the crossings of a covering tree."""

import math
from collections.abc import Sequence

from inference.protocol.completion import ExplainedNode


def find_shares(nodes: Sequence[ExplainedNode]) -> tuple[float | None, ...]:
    """Returns for each node the share of its crossing in the mass of all; None for a node without a crossing."""
    masses = [node.log_mass for node in nodes if node.log_mass is not None]
    if not masses:
        return (None,) * len(nodes)
    largest = max(masses)
    total = largest + math.log(sum(math.exp(mass - largest) for mass in masses))
    return tuple(None if node.log_mass is None else math.exp(node.log_mass - total) for node in nodes)
