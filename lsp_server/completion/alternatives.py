"""More suggestions for one cursor, for a person who asked for them."""

import dataclasses
from contextlib import aclosing

from inference.errors import MidtokenError
from inference.protocol.completion import Chunks, CompletionRequest
from lsp_server.completion.backend import CompletionBackend

_NUM_DRAWN = 4  # of which some are equal
_TEMPERATURE = 0.8
_SEED = 7  # the same cursor has the same alternatives
_DEADLINE_MS = 1500


async def draw_alternatives(backend: CompletionBackend, request: CompletionRequest) -> list[str]:
    """Returns texts that are drawn at random by their probability; none if the server has no room for that.

    They are drawn beside the request for the best text, which they must not supersede.
    """
    drawn = dataclasses.replace(
        request,
        num_candidates=_NUM_DRAWN,
        temperature=_TEMPERATURE,
        seed=_SEED,
        deadline_ms=min(request.deadline_ms or _DEADLINE_MS, _DEADLINE_MS),
        chunks=Chunks.TOKENS,
        document="",
    )
    texts = [""] * _NUM_DRAWN
    try:
        async with aclosing(backend.stream(drawn)) as chunks:
            async for chunk in chunks:
                texts[chunk.candidate] += chunk.text
    except MidtokenError:  # the best text is there, and a lost connection shows at the next request for it
        return []
    return texts
