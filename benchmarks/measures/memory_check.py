"""Compares completions that may use what an engine remembers with completions that cannot."""

import dataclasses
import math
from dataclasses import dataclass

from inference.engine.sink import Completer, WaitingSink, complete
from inference.protocol.completion import CompletionRequest, Explanation


@dataclass(frozen=True, slots=True)
class Pair:
    """A request in two forms: one may be answered from memory; nothing that the other can use is remembered."""

    warm: CompletionRequest
    cold: CompletionRequest


@dataclass(slots=True)
class MemoryCheck:
    """What the comparison has found so far."""

    num_keys: int = 0
    num_different: int = 0  # completions whose text is not the same cold, warm, and warm with all masses computed
    max_difference: float = 0.0  # between log probabilities at the crossings, warm and cold

    def add(self, engine: Completer, pair: Pair) -> None:
        """Compares one key. The warm request is made as it is, and once more with its explanation.

        An explanation has the masses of all crossings, so an engine computes everything for it. Without, it may choose
        a token before it knows them all. Raises ValueError if the two covering trees differ.
        """
        plain_text, _ = complete(engine, pair.warm)
        warm_text, warm = _explain(engine, pair.warm)
        cold_text, cold = _explain(engine, pair.cold)
        self.num_keys += 1
        self.num_different += len({plain_text, warm_text, cold_text}) > 1
        self.max_difference = max(self.max_difference, find_difference(warm, cold))


def find_difference(warm: Explanation, cold: Explanation) -> float:
    """The largest difference between two log probabilities that should be equal. Raises ValueError for other trees."""
    if [(node.parent, node.token) for node in warm.nodes] != [(node.parent, node.token) for node in cold.nodes]:
        raise ValueError("the covering trees of a text differ: it must not depend on what is remembered")
    pairs = [
        (getattr(ours, name), getattr(theirs, name))
        for ours, theirs in zip(warm.nodes, cold.nodes, strict=True)
        for name in ("log_mass", "best_log_prob")
    ]
    return max((_find_distance(ours, theirs) for ours, theirs in pairs), default=0.0)


def _find_distance(ours: float | None, theirs: float | None) -> float:
    if ours is None or theirs is None:  # no token can follow there
        return 0.0 if ours is theirs else math.inf
    return abs(ours - theirs)


def _explain(engine: Completer, request: CompletionRequest) -> tuple[str, Explanation]:
    sink = WaitingSink()
    engine.submit(dataclasses.replace(request, explain=True), sink)
    text, _ = sink.wait()
    assert sink.explanation is not None, "it was asked for"
    return text, sink.explanation
