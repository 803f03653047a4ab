"""A stream shows what a whole answer shows, and a text ends where it is no longer likely."""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from inference.likely_text import LikelyText
from inference.protocol.completion import CompletionChunk, CompletionStats, FinishReason
from midtoken.http.likely import show_likely

_TOKENS = st.lists(
    st.tuples(st.sampled_from(["a", "b c", " d", " ", "(", "\n", "\n  e"]), st.sampled_from([1.0, 0.9, 0.3])),
    min_size=2,
    max_size=8,
)


@settings(max_examples=20 * settings().max_examples)
@given(_TOKENS, st.lists(st.booleans(), min_size=8, max_size=8), st.sampled_from([0.0, 0.1, 0.4, 1.0]))
def test_the_chunks_of_a_stream_are_the_likely_text_and_its_probabilities(
    tokens: list[tuple[str, float]], cuts: list[bool], confidence: float
) -> None:
    whole, streamed = LikelyText(), LikelyText()
    chunks = [*_split(tokens, cuts)]
    for chunk in chunks:
        whole.add(chunk)
    shown = asyncio.run(_read(chunks, confidence))
    for chunk in shown:
        streamed.add(chunk)
    end = whole.count_likely(0, confidence)
    assert streamed.text == whole.text[:end]
    assert (shown[-1].finish_reason is FinishReason.UNLIKELY) == (end < len(whole.text))
    assert shown[-1].is_last
    expected = [each.log_prob for each in whole.read_tokens() if each.start < end]
    assert math.isclose(sum(each.log_prob for each in streamed.read_tokens()), sum(expected), abs_tol=1e-9)
    assert "".join(each.text for each in streamed.read_tokens()) == streamed.text


def _split(tokens: Sequence[tuple[str, float]], cuts: Sequence[bool]) -> list[CompletionChunk]:
    """A chunk ends after each token whose flag is set. The last one has no text."""
    chunks, text, ends, log_probs, log_prob = [], "", list[int](), list[float](), 0.0
    for (token, probability), is_cut in zip(tokens, cuts, strict=False):
        text, log_prob = text + token, log_prob + math.log(probability)
        ends, log_probs = [*ends, len(text)], [*log_probs, log_prob]
        if is_cut:
            chunks.append(CompletionChunk(text, text_ends=tuple(ends), log_probs=tuple(log_probs)))
            text, ends, log_probs = "", [], []
    last = CompletionChunk(text, 0, tuple(ends), tuple(log_probs), 0, FinishReason.LENGTH, CompletionStats())
    return [*chunks, last]


async def _read(chunks: Sequence[CompletionChunk], confidence: float) -> list[CompletionChunk]:
    async def iterate() -> AsyncGenerator[CompletionChunk, None]:
        for chunk in chunks:
            yield chunk

    return [each async for each in show_likely(iterate(), confidence)]
