"""Chunks with as much of their text as is likely: what an editor of midtoken would show before a key is typed."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from inference.likely_text import LikelyText
from inference.protocol.completion import CompletionChunk, FinishReason


async def show_likely(
    chunks: AsyncGenerator[CompletionChunk, None], confidence: float
) -> AsyncGenerator[CompletionChunk, None]:
    """Yields the chunks. The text of each candidate ends where it is less likely than `confidence`.

    Text that a later token may cut waits for it.
    """
    shown = defaultdict[int, _Shown](_Shown)
    async with aclosing(chunks):
        async for chunk in chunks:
            cut = shown[chunk.candidate].add(chunk, confidence)
            if cut.text or cut.finish_reason or cut.is_last:
                yield cut


class _Shown:
    """What is shown of one candidate."""

    def __init__(self) -> None:
        self._likely = LikelyText()
        self._num_shown = 0

    def add(self, chunk: CompletionChunk, confidence: float) -> CompletionChunk:
        """Returns the chunk with what is to be shown now."""
        self._likely.add(chunk)
        start, has_ended = self._num_shown, chunk.finish_reason is not None
        end = self._num_shown = self._likely.count_shown(confidence, has_ended)
        cut = self._likely.cut_chunk(chunk, start, end)
        is_cut = chunk.finish_reason not in (None, FinishReason.SUPERSEDED) and end < len(self._likely.text)
        return replace(cut, finish_reason=FinishReason.UNLIKELY) if is_cut else cut
