"""Completions of an engine in this process, with their times."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.corpora.repository_text import cut_text
from benchmarks.measures.gpu.setting import RandomEngine
from inference.engine.sink import CompletionEngine, WaitingSink
from inference.protocol.completion import (
    Chunks,
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Extent,
    FinishReason,
)

# A name that nobody has chosen, so that no completion guesses its next letter.
_TYPED = "value = zqxj_wvkf_pyrg_hmbd_ctnl_uosx_ieav_qzjw_gkxy_rvpo"
_FIRST_KEY = len("value = z")


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion, and how long it took."""

    ms: float
    finish_reason: FinishReason | None
    stats: CompletionStats


class _TimedSink(WaitingSink):
    """Also notes when and why the first candidate ended."""

    ended_at = 0.0
    finish_reason: FinishReason | None = None

    def send(self, chunk: CompletionChunk) -> None:
        self.finish_reason = chunk.finish_reason or self.finish_reason
        if chunk.is_last:
            self.ended_at = time.perf_counter()
        super().send(chunk)


def complete_all(engine: CompletionEngine, requests: Sequence[CompletionRequest]) -> list[Completion]:
    """Asks for all at once. Raises the error of a failed request."""
    sinks = [_TimedSink() for _ in requests]
    began_at = time.perf_counter()
    for request, sink in zip(requests, sinks, strict=True):
        engine.submit(request, sink)
    all_stats = [sink.wait()[1] for sink in sinks]
    return [
        Completion(1e3 * (sink.ended_at - began_at), sink.finish_reason, stats)
        for sink, stats in zip(sinks, all_stats, strict=True)
    ]


class Document:
    """A document in which somebody types at the end. Its last line has no indentation, so no extent ends a block."""

    def __init__(self, loaded: RandomEngine, num_context: int, index: int = 0) -> None:
        self._text = cut_text(loaded.loaded.tokenizer.encoder, loaded.loaded.tokenizer.vocabulary, num_context, index)
        self._uri = f"file:///document_{index}.py"
        self._num_typed = _FIRST_KEY

    def type_key(self, max_tokens: int) -> CompletionRequest:
        """The request after the next key, as the language server sends it."""
        request = CompletionRequest(
            self._text + _TYPED[: self._num_typed],
            max_tokens=max_tokens,
            extent=Extent.BLOCK,
            chunks=Chunks.LINES,
            document=self._uri,
        )
        self._num_typed += 1
        if self._num_typed > len(_TYPED):
            self._num_typed = _FIRST_KEY
            self._text += _TYPED + "\n"
        return request
