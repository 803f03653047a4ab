"""The answers of a real completion server for the playground."""

import math

from inference.protocol.completion import (
    CompletionChunk,
    CompletionStats,
    ExplainedNode,
    Explanation,
    FinishReason,
)

# `return Nod` of the README, with rounder numbers.
EXPLANATION = Explanation(
    kept_tail=("():\n", "   ", " return"),
    healed_bytes=" Nod",
    nodes=(
        ExplainedNode(None, "", 0, math.log(0.6), " Node", math.log(0.6)),
        ExplainedNode(0, " N", 2, math.log(0.3), "odes", math.log(0.3)),
        ExplainedNode(1, "od", 4, math.log(0.1), "al", math.log(0.1)),
    ),
    chosen_tokens=(" Node",),
    unhealed_tokens=(" N", "od"),
)
EXACT = CompletionChunk(
    "e",
    healed_bytes=4,
    finish_reason=FinishReason.EXTENT,
    stats=CompletionStats(queue_ms=1.0, total_ms=12.0, num_forwards=2, num_context_tokens=24, num_read_tokens=3),
    explanation=EXPLANATION,
)
