import dataclasses
import math

import pytest

from benchmarks.measures.memory_check import MemoryCheck, Pair, find_difference
from inference.engine.sink import ChunkSink
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    ExplainedNode,
    Explanation,
    FinishReason,
)

_WARM, _COLD = CompletionRequest("text", seed=1), CompletionRequest("text", seed=2)


def _explanation(*nodes: tuple[str, float | None]) -> Explanation:
    explained = [ExplainedNode(None, token, 0, log_mass, None, log_mass) for token, log_mass in nodes]
    return Explanation((), "", tuple(explained), (), ())


class _Engine:
    """Answers with the text and the log mass that are given for the request's seed and for whether it explains."""

    def __init__(self, texts: dict[tuple[int | None, bool], str], masses: dict[int | None, float]) -> None:
        self.requests: list[CompletionRequest] = []
        self._texts = texts
        self._masses = masses

    def submit(self, request: CompletionRequest, sink: ChunkSink) -> None:
        self.requests.append(request)
        text = self._texts.get((request.seed, request.explain), "same")
        explanation = _explanation(("", self._masses.get(request.seed, 0.0))) if request.explain else None
        sink.send(
            CompletionChunk(text, finish_reason=FinishReason.END, stats=CompletionStats(), explanation=explanation)
        )

    def measure_heartbeat_ms(self) -> float:
        return 0.0

    def close(self) -> None: ...


def _check(engine: _Engine, num_keys: int = 1) -> MemoryCheck:
    check = MemoryCheck()
    for _ in range(num_keys):
        check.add(engine, Pair(_WARM, _COLD))
    return check


def test_equal_completions_are_not_counted() -> None:
    engine = _Engine({}, {1: -1.5, 2: -1.5})

    assert _check(engine, 3) == MemoryCheck(3, 0, 0.0)
    explained = dataclasses.replace(_WARM, explain=True), dataclasses.replace(_COLD, explain=True)
    assert engine.requests[:3] == [_WARM, *explained]


@pytest.mark.parametrize("odd", [(1, False), (1, True), (2, True)])
def test_a_completion_that_differs_in_any_of_the_three_ways_is_counted(odd: tuple[int, bool]) -> None:
    assert _check(_Engine({odd: "other"}, {})).num_different == 1


def test_the_largest_difference_of_all_keys_is_kept() -> None:
    check = MemoryCheck()
    for mass in (-1.0, -1.75, -1.25):
        check.add(_Engine({}, {1: mass, 2: -1.0}), Pair(_WARM, _COLD))

    assert check.max_difference == 0.75


def test_nodes_that_nothing_can_follow_are_equal_if_both_are() -> None:
    warm, cold = _explanation(("a", None), ("b", -2.0)), _explanation(("a", None), ("b", -2.5))

    assert find_difference(warm, cold) == 0.5
    assert find_difference(warm, _explanation(("a", -9.0), ("b", -2.0))) == math.inf


def test_other_trees_are_an_error() -> None:
    with pytest.raises(ValueError, match="covering trees of a text differ"):
        find_difference(_explanation(("a", -1.0)), _explanation(("b", -1.0)))
