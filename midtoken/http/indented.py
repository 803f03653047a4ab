"""Chunks with the indentation of the client's text, where that is tabs: the model gets and writes blanks for them."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from itertools import accumulate

from inference.protocol.completion import CompletionChunk, CompletionRequest
from lsp_server.context import Context
from lsp_server.indentation import find_unit, match_indentation, write_blanks

_NEAR_CHARS = 8000  # on each side, in which the indentation is looked for with each chunk


def send_blanks(request: CompletionRequest) -> CompletionRequest:
    """Returns the request with blanks for the tabs of Python (`write_blanks`)."""
    context = write_blanks(Context(request.prefix, request.suffix))
    return replace(request, prefix=context.prefix, suffix=context.suffix)


async def write_tabs(
    chunks: AsyncGenerator[CompletionChunk, None], request: CompletionRequest
) -> AsyncGenerator[CompletionChunk, None]:
    """Yields the chunks. In a text that is indented with tabs, so are theirs. `request`: with the client's text."""
    context = Context(request.prefix[-_NEAR_CHARS:], request.suffix[:_NEAR_CHARS])
    has_tabs = find_unit(context) == "\t"
    texts = defaultdict[int, _Text](lambda: _Text(context))
    async with aclosing(chunks):
        async for chunk in chunks:
            written = texts[chunk.candidate].add(chunk) if has_tabs else chunk
            if written.text or written.finish_reason or written.is_last:
                yield written


class _Text:
    """What has arrived of one candidate, and what was passed on of it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._text, self._num_passed = "", 0
        self._tokens: list[tuple[int, float]] = []  # where they end, and their probabilities; those not passed on

    def add(self, chunk: CompletionChunk) -> CompletionChunk:
        """Returns the chunk with the text that is settled: a line whose indentation is not known yet waits."""
        ends = [len(self._text) + end for end in chunk.text_ends]
        self._tokens += zip(ends, chunk.log_probs, strict=True)
        self._text += chunk.text
        is_last = chunk.finish_reason is not None
        settled = self._text if is_last or self._text.rpartition("\n")[2].strip() else self._text.rstrip()
        written = match_indentation(settled, self._context)
        start, self._num_passed = self._num_passed, max(self._num_passed, len(written))
        passed = [each for each in self._tokens if each[0] <= len(settled)]
        self._tokens = self._tokens[len(passed) :]
        places = [min(_find_end(settled, written, end), self._num_passed) - start for end, _ in passed]
        log_probs = [log_prob for _, log_prob in passed]
        return replace(chunk, text=written[start:], text_ends=(*places,), log_probs=(*log_probs,))


def _find_end(text: str, written: str, end: int) -> int:
    """Returns where a place in a text is in the text with other indentation."""
    number = text.count("\n", 0, end)
    olds, news = text.split("\n"), written.split("\n")
    if number >= len(news):
        return len(written)
    starts = [0, *accumulate(len(line) + 1 for line in news)]
    to_line_end = text.find("\n", end) if "\n" in text[end:] else len(text)
    return starts[number] + max(0, len(news[number]) - min(to_line_end - end, len(olds[number])))
