"""A completion server for the playground that a test feeds, and the answers of a real one."""

import asyncio
import math

from inference.protocol.characters import CharacterAnswer, CharacterRequest, CoveringMember, NextByte
from inference.protocol.completion import (
    CompletionChunk,
    CompletionStats,
    ExplainedNode,
    Explanation,
    FinishReason,
)
from lsp_server.privacy.guard import Cleared
from tests.support.lsp_fakes import FedBackend

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
NEXT_BYTE = NextByte(
    tuple(0.9 if byte == ord("e") else 0.1 if byte == ord("(") else 0.0 for byte in range(257)),
    (CoveringMember((" return", " Node"), "e", 0.9), CoveringMember((" return", " N", "od"), "", 0.1)),
)


class FedServer(FedBackend):
    """A backend whose answers the test feeds, those of the character-level model too."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[CharacterRequest, asyncio.Future[CharacterAnswer]]] = []

    async def ask(self, request: Cleared[CharacterRequest]) -> CharacterAnswer:
        answer: asyncio.Future[CharacterAnswer] = asyncio.get_running_loop().create_future()
        self.asked.append((request.value, answer))
        return await answer
