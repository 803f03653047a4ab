"""Typists in front of a fleet of servers. Each waits for a key's answer, or for an error, and then types the next.

A key whose stream fails is asked for again, as editors do at the next key, until it is answered.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from benchmarks.load import record_typing
from inference.errors import MidtokenError, ServerError
from inference.protocol.completion import Chunks, CompletionChunk, CompletionRequest, FinishReason

NUM_DOCUMENTS, NUM_KEYS = 40, 50  # of each
_NUM_TYPISTS, _NUM_RECORDED = 6, 450
_PAUSE_S, _PATIENCE_S = 0.05, 60.0

_ENDED_EARLY = (FinishReason.DEADLINE, FinishReason.CANCELLED, FinishReason.SUPERSEDED)

Document = tuple[str, str]  # tenant and name
Stream = Callable[[CompletionRequest, str], AsyncGenerator[CompletionChunk, None]]  # with the id of a trace


@dataclass(slots=True)
class PlayedKey:
    """A key, and what became of it."""

    document: Document
    trace_id: str  # of the attempt that was answered
    asked_at: float
    text: str = ""
    answered_at: float = 0.0
    num_read: int = 0  # context tokens that the server did not remember
    num_context: int = 0
    cut: list[str] = field(default_factory=list)  # what had come of attempts that failed; empty texts have not begun
    errors: list[str] = field(default_factory=list)


def record_typists() -> list[list[CompletionRequest]]:
    """The keys of each typist: 2,000 in 40 documents."""
    scripts, chosen = [], Counter[Document]()
    for typist in range(_NUM_TYPISTS):
        script = [_adapt(each.request) for each in record_typing(typist, _NUM_RECORDED)]
        counts = Counter(find_document(request) for request in script)
        fitting = [each for each in sorted(counts) if counts[each] >= NUM_KEYS][: NUM_DOCUMENTS - len(chosen)]
        kept = []
        for request in script:
            if (document := find_document(request)) in fitting and chosen[document] < NUM_KEYS:
                chosen[document] += 1
                kept.append(request)
        scripts.append(kept)
    assert chosen.total() == NUM_DOCUMENTS * NUM_KEYS
    return scripts


def _adapt(request: CompletionRequest) -> CompletionRequest:
    """In parts, so that it can be lost in the middle. One process plays all typists, and names no document twice."""
    return replace(request, chunks=Chunks.TOKENS, document=f"{request.tenant}, {request.document}")


def find_document(request: CompletionRequest) -> Document:
    """Whose home is looked for."""
    return request.tenant, request.document


async def play(scripts: Sequence[Sequence[CompletionRequest]], stream: Stream) -> list[PlayedKey]:
    """All typists at once. Each key is answered at last; raises TimeoutError if one is not in a minute."""
    played = await asyncio.gather(*(_type(number, script, stream) for number, script in enumerate(scripts)))
    return [key for some in played for key in some]


async def _type(typist: int, script: Sequence[CompletionRequest], stream: Stream) -> list[PlayedKey]:
    keys = []
    for number, request in enumerate(script):
        keys.append(PlayedKey(find_document(request), "", time.perf_counter()))
        attempt = 0
        async with asyncio.timeout(_PATIENCE_S):
            while not keys[-1].answered_at:
                keys[-1].trace_id = f"{1 + typist:08x}{number:012x}{attempt:012x}"
                await _ask(keys[-1], request, stream)
                attempt += 1
    return keys


async def _ask(key: PlayedKey, request: CompletionRequest, stream: Stream) -> None:
    text, reason = "", None
    try:
        async with aclosing(stream(request, key.trace_id)) as chunks:
            async for chunk in chunks:
                text, reason = text + chunk.text, chunk.finish_reason or reason
                if chunk.stats is not None:
                    key.num_read, key.num_context = chunk.stats.num_read_tokens, chunk.stats.num_context_tokens
        if reason in _ENDED_EARLY:
            raise ServerError(f"it has ended early: {reason}")
        key.text, key.answered_at = text, time.perf_counter()
    except MidtokenError as error:
        key.cut.append(text)
        key.errors.append(str(error))
        await asyncio.sleep(_PAUSE_S)


def find_reuse(keys: Sequence[PlayedKey]) -> float:
    """The share of the context tokens that a server remembered, in percent, after the first key of a document."""
    seen, later = set[Document](), []
    for key in keys:
        later += [key] if key.document in seen else []
        seen.add(key.document)
    return 100 * (1 - sum(key.num_read for key in later) / sum(key.num_context for key in later))


def find_affinity(keys: Sequence[PlayedKey], servers: Mapping[str, str]) -> float:
    """The share of the keys that went to the server of most keys of their document. `servers`: by the id of a trace."""
    homes = defaultdict[Document, Counter[str]](Counter)
    for key in keys:
        homes[key.document][servers[key.trace_id]] += 1
    return sum(max(home.values()) for home in homes.values()) / len(keys)


def count_wrong(keys: Sequence[PlayedKey], expected: Sequence[PlayedKey]) -> int:
    """How many texts differ from those of a single server, or do not begin as those, where a stream was cut."""
    pairs = zip(keys, expected, strict=True)
    return sum(key.text != right.text or not all(map(right.text.startswith, key.cut)) for key, right in pairs)


def find_failover_s(keys: Sequence[PlayedKey], killed_at: Sequence[float]) -> float:
    """The longest time from a loss, or from a later key, until a key was answered whose stream had failed."""
    starts = {id(key): max((at for at in killed_at if at <= key.answered_at), default=0.0) for key in keys if key.cut}
    return max((key.answered_at - max(starts[id(key)], key.asked_at) for key in keys if key.cut), default=0.0)
