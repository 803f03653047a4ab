"""What an engine answers: the best text after exactly the typed bytes, with others as alone."""

import codecs
import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from inference.engine.loop_rule import LoopRule
from inference.engine.stopping import build_extent_rule
from inference.protocol.completion import CompletionRequest, Extent, FinishReason, Healing
from tests.inference.conftest import MakeModel
from tests.support.engine_bench import UNBOUNDED, Bench, open_bench
from tests.support.engine_oracle import EngineOracle
from tests.support.sinks import complete, submit
from tests.support.toys import FIM_NAMES, KINDS, ToyTokenizer, texts

_NODE = "class Node:\n    def next(self) -> Nod"
_LONG = "".join(f"name_{index} = {index}\n" for index in range(90)) + "nam"


def _complete_slowly(kind: str, folder: Path, request: CompletionRequest) -> str:
    *_, (text, _) = [("", 0.0), *EngineOracle(kind, folder).iter_texts(request)]
    return text[: build_extent_rule(request.extent, request.prefix, "").find_end(text)]


@pytest.mark.parametrize(
    ("kind", "family", "healing"),
    [
        *((kind, "llama", Healing.EXACT) for kind in KINDS),
        ("qwen", "gpt2", Healing.NONE),
        ("llama3", "gpt_neox", Healing.NONE),
        ("llama2", "llama", Healing.NONE),
    ],
)
@pytest.mark.parametrize("prefix", [_NODE, "for lin", "x = 'caf", "    if not sel", "é", ""])
def test_an_answer_is_the_best_member_of_the_covering_and_then_what_transformers_generates(
    kind: str, family: str, healing: Healing, prefix: str, make_model: MakeModel
) -> None:
    folder, request = make_model(kind, family), CompletionRequest(prefix, "", 8, healing, extent=UNBOUNDED)
    with open_bench(folder, kind) as bench:
        sink = complete(bench.engine, request)

    expected = _complete_slowly(kind, folder, request)
    assert sink.text == expected[: LoopRule(prefix).find_end(expected, len(expected))]


def test_a_long_context_is_read_in_pieces_with_the_same_answer(make_model: MakeModel) -> None:
    """A context of 800 tokens in an engine that reads 512 at a time."""
    folder = make_model("qwen", max_position_embeddings=2048)
    request = CompletionRequest(_LONG, max_tokens=3, extent=UNBOUNDED)
    with open_bench(folder, "qwen") as bench:
        sink = complete(bench.engine, request)

    assert sink.text == _complete_slowly("qwen", folder, request)
    assert sink.stats.num_context_tokens > 512
    assert sink.stats.num_forwards > 3


_Document = tuple[str, str, int]

_documents = st.tuples(texts, texts, st.integers(0, 2**20)).map(
    lambda drawn: (drawn[0][: drawn[2] % (len(drawn[0]) + 1)], drawn[1] if drawn[2] % 3 == 0 else "", drawn[2])
)
"""A prefix cut anywhere, a suffix or none, and a number to pick the rest of a request by."""


def _request_of(document: _Document) -> CompletionRequest:
    prefix, suffix, number = document
    return CompletionRequest(
        prefix,
        suffix,
        max_tokens=2 + number % 3,
        healing=list(Healing)[number % 4],
        extent=list(Extent)[number % 5 % 3],
        stop=(")", "e =") if number % 7 == 0 else (),
        temperature=1.0 if number % 2 else 0.0,
        seed=number,
    )


def _spelled(toy: ToyTokenizer, token_ids: Sequence[int]) -> bytes:
    """Returns the bytes of the prefix section and of the tokens after the middle marker."""
    prefix_id, middle_id, suffix_id = (toy.vocabulary.special_tokens[name] for name in FIM_NAMES)
    ids = list(token_ids)[1:]  # the start token
    if ids and ids[0] == prefix_id:
        middle = ids.index(middle_id)
        ids = ids[1 : ids.index(suffix_id)] + ids[middle + 1 :]
    assert toy.vocabulary.special_ids.isdisjoint(ids)
    return toy.join(ids)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["qwen", "llama2"])
def test_a_completion_always_continues_exactly_the_typed_bytes(kind: str, make_model: MakeModel) -> None:
    """4,000 documents and cursors in a full run: two kinds of tokenizer, all strategies, twenty requests at a time.

    The tokens of the prompt and of the completion spell the typed bytes first. The bytes after them are the text that
    was sent, in one or more chunks.
    """
    numbers = itertools.count()

    @settings(
        max_examples=settings().max_examples,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(documents=st.lists(_documents, min_size=20, max_size=20))
    def check(documents: list[_Document]) -> None:
        bench.model.caches.clear()
        requests = [_request_of(document) for document in documents]
        requests = [dataclasses.replace(each, tenant=str(next(numbers))) for each in requests]
        sinks = [submit(bench.engine, request) for request in requests]  # each has a cache of its own, in this order
        for sink in sinks:
            sink.wait()
        for document, sink, kept in zip(documents, sinks, bench.model.caches, strict=True):
            first = bench.toy.encoder.find_dummy_prefix(document[0])
            typed = (
                (first if document[0] or _request_of(document).healing in (Healing.EXACT, Healing.GREEDY) else "")
                + document[0]
            ).encode()
            spelled = _spelled(bench.toy, kept.token_ids)  # all but the last token
            assert spelled.startswith(typed) or typed.startswith(spelled), document
            said = codecs.getincrementaldecoder("utf-8")("replace").decode(spelled[len(typed) :])
            if sink.finish_reason is FinishReason.END:  # the last token was the end
                assert sink.text == said, document
            elif sink.finish_reason is FinishReason.LENGTH:
                assert len(spelled) > len(typed), document
                assert sink.text.startswith(said), document
            else:  # the text was cut in its last token, or in the one before it
                assert sink.text.startswith(said) or said.startswith(sink.text), document
            assert sink.chunks[0].healed_bytes <= len(document[0].encode())

    with open_bench(make_model(kind), kind, dtype="float32", max_sequences=20, memory_mib=0) as bench:
        check()


def _mixed_requests() -> list[CompletionRequest]:
    prefixes = [_NODE, "for lin", "x = 'caf", "x = 1\n" * 200 + "y = x", "", "import tex", "\n\n  "]
    return [
        CompletionRequest(
            prefix, suffix, 6, healing, extent=UNBOUNDED, temperature=temperature, seed=5, num_candidates=num
        )
        for prefix in prefixes
        for healing, suffix, temperature, num in (
            (Healing.EXACT, "", 0.0, 1),
            (Healing.EXACT, "\nreturn x", 0.8, 3),
            (Healing.GREEDY, "", 0.0, 1),
            (Healing.SINGLE, "", 1.0, 1),
            (Healing.NONE, "", 0.0, 2),
        )
    ]


def test_requests_get_the_same_answers_together_as_alone(bench: Bench) -> None:
    requests = _mixed_requests()
    alone = [complete(bench.engine, request).texts for request in requests]

    together = [sink.wait().texts for sink in [submit(bench.engine, request) for request in requests]]

    assert together == alone


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_candidate_is_sent_and_ends_once(bench: Bench, temperature: float) -> None:
    """Some candidates end long before others: at a line end, at a stop string, or at `max_tokens`."""
    request = CompletionRequest(
        "x = ",
        max_tokens=30,
        num_candidates=8,
        temperature=temperature,
        seed=3,
        stop=("e", "t"),
        extent=Extent.SINGLE_LINE,
    )

    sink = complete(bench.engine, request)

    ends = [chunk.candidate for chunk in sink.chunks if chunk.finish_reason]
    assert sorted(ends) == list(range(8))
    assert ends != sorted(ends), "they end together; the case says little"
    assert [chunk.is_last for chunk in sink.chunks] == [False] * (len(sink.chunks) - 1) + [True]


@pytest.mark.parametrize(("temperature", "num_alike"), [(0.0, 1), (1.0, 3)])
def test_the_candidates_are_the_completions_of_their_own_seeds(
    bench: Bench, temperature: float, num_alike: int
) -> None:
    """Of greedy ones, the first is the greedy completion."""
    request = CompletionRequest(_NODE, max_tokens=6, temperature=temperature, seed=7, extent=UNBOUNDED)

    several = complete(bench.engine, dataclasses.replace(request, num_candidates=3)).texts

    assert len(set(several)) == 3
    alone = [complete(bench.engine, dataclasses.replace(request, seed=7 + index)).text for index in range(num_alike)]
    assert several[:num_alike] == alone
