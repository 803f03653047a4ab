"""The probabilities that an answer tells, against those of all token strings that spell what was typed."""

import math
from collections.abc import Iterator

import pytest

from inference.engine.candidate import CandidateText, StopConditions
from inference.engine.stopping import LineRule
from inference.protocol.completion import Chunks, CompletionRequest, Extent, FinishReason, RelatedFile
from tests.inference.conftest import MakeModel
from tests.support.engine_bench import open_bench
from tests.support.engine_oracle import EngineOracle
from tests.support.sinks import CollectingSink, complete
from tests.support.toys import KINDS

_PREFIXES = ("class Node:\n    def next(self) -> Nod", "x = text.expandt", "import tex", "    return s", "é", "\n  ")
_RELATED = (RelatedFile("node.py", "class Node:\n    def expandtabs(self):\n"),)
_NUM_TOKENS = 6


def _list_ends(sink: CollectingSink) -> list[tuple[int, float]]:
    """Where tokens end in the text, and what is told of the text up to there."""
    ends, num_chars = [], 0
    for chunk in sink.chunks:
        ends += [(num_chars + end, log_prob) for end, log_prob in zip(chunk.text_ends, chunk.log_probs, strict=True)]
        num_chars += len(chunk.text)
    return ends


def _drop_repeated(texts: Iterator[tuple[str, float]]) -> dict[int, float]:
    """A token that adds no whole character changes nothing."""
    kept = dict[int, float]()
    for text, log_prob in texts:
        if text:
            kept.setdefault(len(text), log_prob)
    return kept


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunks", Chunks)
def test_a_text_has_the_share_of_its_tokens_among_all_strings_that_spell_what_was_typed(
    kind: str, chunks: Chunks, make_model: MakeModel
) -> None:
    oracle = EngineOracle(kind, make_model(kind))
    with open_bench(make_model(kind), kind) as bench:
        for number, prefix in enumerate(_PREFIXES):
            related = _RELATED[: number % 2]
            request = CompletionRequest(
                prefix, max_tokens=_NUM_TOKENS, extent=Extent.UNLIMITED, chunks=chunks, related=related
            )

            told = dict(_list_ends(complete(bench.engine, request)))

            expected = _drop_repeated(oracle.iter_texts(request))
            shared = [end for end in told if end in expected]
            assert len(shared) >= min(len(expected), len(told)) - 1  # a text that loops may end inside of a token
            assert [told[end] for end in shared] == pytest.approx([expected[end] for end in shared], abs=1e-4)


def test_a_text_ends_after_the_first_token_that_makes_it_unlikely(make_model: MakeModel) -> None:
    with open_bench(make_model("qwen"), "qwen") as bench:
        whole = complete(bench.engine, CompletionRequest("x = te", max_tokens=8, extent=Extent.UNLIMITED))
        ends = _list_ends(whole)
        for at, (num_chars, log_prob) in enumerate(ends[:-1]):
            limit = min(math.exp(log_prob) * 1.001, 1.0)
            request = CompletionRequest("x = te", max_tokens=8, extent=Extent.UNLIMITED, min_probability=limit)

            sink = complete(bench.engine, request)

            assert (sink.text, sink.finish_reason) == (whole.text[:num_chars], FinishReason.UNLIKELY)
            assert dict(_list_ends(sink)) == pytest.approx(dict(ends[: at + 1]))


def test_a_text_that_was_cut_inside_of_a_token_is_told_to_be_as_likely_as_with_all_of_it() -> None:
    answer = CandidateText(StopConditions(64, (";;",), LineRule()))
    for token, log_prob in ((b"a", -0.5), (b"b;;c", -0.25)):
        answer.add(token, log_prob=log_prob)

    piece = answer.pop_ready()

    assert piece is not None
    assert (piece.text, piece.ends) == ("ab", {1: -0.5, 2: -0.75})
