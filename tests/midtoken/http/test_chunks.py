"""A text ends where it is no longer likely, and has the indentation of the client's, in a stream as well as whole."""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.likely_text import LikelyText
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats, FinishReason
from midtoken.http.chunks import send_blanks, shape_chunks

_PREFIX = "class A:\n\tdef size(self):"
_WRITTEN = "\n        if x:\n            return 2\n        return 1\n"


@pytest.mark.parametrize("num_chars", [1, 3, 100])
@pytest.mark.parametrize(
    ("prefix", "shown"), [(_PREFIX, "\n\t\tif x:\n\t\t\treturn 2\n\t\treturn 1\n"), ("a:\n  b:", _WRITTEN)]
)
async def test_a_text_with_tabs_is_continued_with_tabs(prefix: str, shown: str, num_chars: int) -> None:
    async def generate() -> AsyncGenerator[CompletionChunk, None]:
        for start in range(0, len(_WRITTEN), num_chars):
            part = _WRITTEN[start : start + num_chars]
            yield CompletionChunk(part, text_ends=(len(part),), log_probs=(-0.1 * (start + 1),))
        yield CompletionChunk("", finish_reason=FinishReason.END)

    chunks = [each async for each in shape_chunks(generate(), CompletionRequest(prefix))]
    assert "".join(each.text for each in chunks) == shown
    assert any(each.text_ends for each in chunks) == (shown == _WRITTEN)
    assert all(end <= len(each.text) for each in chunks for end in each.text_ends)


@pytest.mark.parametrize(
    ("prefix", "sent"), [(_PREFIX, "class A:\n    def size(self):"), ("func f() {\n\tif a {", "func f() {\n\tif a {")]
)
def test_the_model_gets_blanks_for_the_tabs_of_python_only(prefix: str, sent: str) -> None:
    assert send_blanks(CompletionRequest(prefix)).prefix == sent


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

    return [each async for each in shape_chunks(iterate(), CompletionRequest("", min_probability=confidence))]
