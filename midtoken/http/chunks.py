"""Chunks as a client gets them: as much of their text as is likely, with the indentation of the client's text.

Where that is tabs, the model gets and writes blanks for them.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from inference.likely_text import LikelyText
from inference.protocol.completion import CompletionChunk, CompletionRequest, FinishReason
from lsp_server.context import Context
from lsp_server.indentation import find_unit, match_indentation, write_blanks

_NEAR_CHARS = 8000  # on each side, in which the indentation is looked for with each chunk


def send_blanks(request: CompletionRequest) -> CompletionRequest:
    """Returns the request with blanks for the tabs of Python (`write_blanks`)."""
    context = write_blanks(Context(request.prefix, request.suffix))
    return replace(request, prefix=context.prefix, suffix=context.suffix)


async def shape_chunks(
    chunks: AsyncGenerator[CompletionChunk, None], request: CompletionRequest
) -> AsyncGenerator[CompletionChunk, None]:
    """Yields the chunks. The text of each candidate ends where it is less likely than the request's confidence.

    Text that a later token may cut waits for it. Text with other indentation than the model's has no probabilities.
    `request`: with the client's text.
    """
    context = Context(request.prefix[-_NEAR_CHARS:], request.suffix[:_NEAR_CHARS])
    with_tabs = context if find_unit(context) == "\t" else None
    candidates = defaultdict[int, _Candidate](lambda: _Candidate(with_tabs))
    async with aclosing(chunks):
        async for chunk in chunks:
            shaped = candidates[chunk.candidate].add(chunk, request.min_probability)
            if shaped.text or shaped.finish_reason or shaped.is_last:
                yield shaped


class _Candidate:
    """What has arrived of one candidate, and what was passed on of it. `context`: of a text with tabs."""

    def __init__(self, context: Context | None) -> None:
        self._context, self._likely = context, LikelyText()
        self._num_shown = self._num_written = 0  # characters of its text, and of that with tabs

    def add(self, chunk: CompletionChunk, confidence: float) -> CompletionChunk:
        """Returns the chunk with what is to be passed on now."""
        self._likely.add(chunk)
        has_ended = chunk.finish_reason is not None
        end = self._likely.count_shown(confidence, has_ended)
        if end < len(self._likely.text) and chunk.finish_reason not in (None, FinishReason.SUPERSEDED):
            chunk = replace(chunk, finish_reason=FinishReason.UNLIKELY)
        shown = self._likely.text[:end]
        if self._context is not None and not has_ended and not shown.rpartition("\n")[2].strip():
            shown = shown.rstrip()  # the indentation of the last line is not known yet
        start, self._num_shown = self._num_shown, max(self._num_shown, len(shown))
        cut = self._likely.cut_chunk(chunk, start, len(shown))
        if self._context is None:
            return cut
        written = match_indentation(shown, self._context)
        begin, self._num_written = self._num_written, max(self._num_written, len(written))
        if written != shown:  # where its tokens end is not known
            cut = replace(cut, text_ends=(), log_probs=())
        return replace(cut, text=written[begin:])
