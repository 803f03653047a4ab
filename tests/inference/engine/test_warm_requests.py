"""What a request gets does not depend on what was remembered before it; only its cost does."""

import dataclasses
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference.engine.fill_in import Layout
from inference.engine.prompt import PromptBuilder
from inference.errors import OverloadedError
from inference.protocol.completion import (
    CompletionRequest,
    CompletionStats,
    Explanation,
    Healing,
    Priority,
    RelatedFile,
)
from tests.inference.conftest import MakeModel
from tests.support.engine_bench import UNBOUNDED, Bench, WatchedModel, open_bench
from tests.support.scripted_model import raise_full
from tests.support.sinks import CollectingSink, complete, submit
from tests.support.toys import build_prompts, load_toy, toy_tokenizer

_TEXT = "import os\n\n\ndef walk(node):\n    for child in node.children:\n        "
_SUFFIXES = ("", "\n    return node\n", "\n    return child\n")
_RELATED = (
    RelatedFile("nodes.py", "class Node:\n    children: list[Node]\n\n    def text(self) -> str:\n"),
    RelatedFile("lines.py", "def wrap(text: str, width: int) -> list[str]:\n" * 2),
)
_LAYOUTS = (Layout.SPM, Layout.PSM_LINE, Layout.NONE)

_edits = st.one_of(
    st.sampled_from(["w", "al", "k(", "chi", "ld", ")", ".", " = ", "\n", "\n        ", "é"]).map(
        lambda text: ("type", text)
    ),
    st.tuples(st.just("back"), st.integers(1, 12)),
    st.tuples(st.just("move"), st.integers(0, len(_TEXT))),
    st.just(("return", 0)),
    st.just(("accept", 0)),
    st.just(("again", 0)),
    st.tuples(st.just("suffix"), st.integers(0, len(_SUFFIXES) - 1)),
    st.tuples(st.just("related"), st.integers(0, len(_RELATED))),
)


@dataclasses.dataclass
class _Editor:
    """A text with a cursor at the end of `prefix`."""

    prefix: str = _TEXT
    suffix: str = _SUFFIXES[0]
    completion: str = ""
    furthest: str = _TEXT
    related: tuple[RelatedFile, ...] = ()

    def edit(self, kind: str, value: str | int) -> None:
        if isinstance(value, str):
            self.prefix += value
        elif kind == "back":
            self.prefix = self.prefix[:-value]
        elif kind == "move":
            self.prefix = self.furthest[:value]
        elif kind == "return":
            self.prefix = self.furthest
        elif kind == "accept":
            self.prefix += self.completion
        elif kind == "suffix":
            self.suffix = _SUFFIXES[value]
        elif kind == "related":
            self.related = _RELATED[:value]
        if kind not in ("move", "again", "suffix", "related"):
            self.furthest = self.prefix


@cache
def _build_prompts(layout: Layout) -> PromptBuilder:
    toy = toy_tokenizer("qwen")
    return PromptBuilder(load_toy(toy)) if layout is Layout.NONE else build_prompts(toy, layout)


def _split_explanation(sink: CollectingSink) -> tuple[list[float | None], Explanation | None]:
    """The numbers of the explanation, and the rest of it."""
    explanation = sink.chunks[-1].explanation
    if explanation is None:
        return [], None
    numbers = [number for node in explanation.nodes for number in (node.log_mass, node.best_log_prob)]
    nodes = tuple(dataclasses.replace(node, log_mass=None, best_log_prob=None) for node in explanation.nodes)
    return numbers, dataclasses.replace(explanation, nodes=nodes)


def _assert_answers_agree(warm: CollectingSink, cold: CollectingSink) -> None:
    assert warm.texts == cold.texts
    assert warm.stats.num_read_tokens <= cold.stats.num_read_tokens
    (warm_numbers, warm_rest), (cold_numbers, cold_rest) = map(_split_explanation, (warm, cold))
    assert warm_numbers == pytest.approx(cold_numbers, abs=1e-6)
    assert warm_rest == cold_rest


_ways = st.fixed_dictionaries(
    {
        "healing": st.sampled_from(Healing),
        "temperature": st.sampled_from([0.0, 0.0, 0.8]),
        "seed": st.integers(0, 3),
        "num_candidates": st.sampled_from([1, 1, 3]),
        "explain": st.booleans(),
        "max_tokens": st.integers(1, 8),
    }
)


_failures = st.tuples(
    st.sampled_from(["nothing", "forward", "reserve", "copy_branches", "copy_tokens", "append", "fork"]),
    st.sampled_from([0, 0, 2]),
)
"""What fails, after how many calls that do not."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("layout", _LAYOUTS)
def test_a_warm_engine_answers_as_a_fresh_one_after_any_edits_and_failures(
    layout: Layout, make_model: MakeModel
) -> None:
    """A forward pass, or something that needs memory for keys and values, fails once in some requests."""
    folder, prompts = make_model("qwen"), _build_prompts(layout)
    failed: set[str] = set()

    @settings(max_examples=max(settings().max_examples // 2, 12), suppress_health_check=list(HealthCheck))
    @given(edits=st.lists(st.tuples(_edits, _ways, _failures), min_size=5, max_size=8))
    def check(edits: list[tuple[tuple[str, str | int], dict[str, object], tuple[str, int]]]) -> None:
        editor = _Editor()
        with open_bench(folder, "qwen", prompts=prompts) as bench:
            for (kind, value), way, failure in edits:
                editor.edit(kind, value)
                request = CompletionRequest(editor.prefix, editor.suffix, extent=UNBOUNDED, **way)  # type: ignore[arg-type]
                request = dataclasses.replace(request, related=editor.related)
                with open_bench(folder, "qwen", prompts=prompts, memory_mib=0) as cold:
                    expected = complete(cold.engine, request)
                assert (expected.chunks[-1].explanation is not None) == request.explain
                _fail_once(bench.model, *failure, failed)
                sink = submit(bench.engine, request)
                sink.wait_for_end()
                if sink.error is None:
                    _assert_answers_agree(sink, expected)
                else:
                    assert isinstance(sink.error, OverloadedError)
                    _fail_once(bench.model, "nothing", 0, failed)
                    sink = complete(bench.engine, request)
                    _assert_answers_agree(sink, expected)
                editor.completion = sink.text

    check()
    assert len(failed) >= 3, "the case says little"


def _fail_once(model: WatchedModel, failing: str, num_good: int, failed: set[str]) -> None:
    num_left = num_good

    def count(name: str) -> None:
        nonlocal num_left
        if name != failing:
            return
        num_left -= 1
        if num_left == -1:
            failed.add(name)
            raise_full()

    model.before_cache, model.before_forward = count, lambda: count("forward")


def _ask(bench: Bench, prefix: str, **fields: object) -> CollectingSink:
    request = CompletionRequest(prefix, max_tokens=4, extent=UNBOUNDED)
    return complete(bench.engine, dataclasses.replace(request, **fields))  # type: ignore[arg-type]


def _stats(bench: Bench, prefix: str, **fields: object) -> CompletionStats:
    return _ask(bench, prefix, **fields).stats


@pytest.mark.parametrize("fields", [{}, {"temperature": 1.0, "seed": 4}, {"explain": True}, {"num_candidates": 3}])
def test_the_same_request_again_forwards_nothing(bench: Bench, fields: dict[str, object]) -> None:
    """All candidates but the first are dropped, so they are read again from where they differ."""
    first = _ask(bench, _TEXT + "chi", **fields)
    again = _ask(bench, _TEXT + "chi", **fields)

    assert again.texts == first.texts
    assert (again.stats.num_read_tokens, again.stats.num_first_tokens) == (0, 0)
    if "num_candidates" not in fields:
        assert again.stats.num_forwards == 0


def test_one_more_letter_of_a_word_reads_only_what_the_context_grew_by(bench: Bench) -> None:
    _ask(bench, _TEXT)
    before = _stats(bench, _TEXT + "c")
    num_unread = 0
    for end in range(2, 6):
        stats = _stats(bench, _TEXT + "child"[:end])

        assert stats.num_read_tokens <= stats.num_context_tokens - before.num_context_tokens
        assert stats.num_first_tokens <= 2
        num_unread += stats.num_read_tokens == 0
        before = stats
    assert num_unread >= 2, "the case says little"


def test_a_completion_that_is_typed_reads_nothing(bench: Bench) -> None:
    text = _TEXT + "child"
    completion = _ask(bench, text, healing=Healing.NONE, max_tokens=12).text

    stats = _stats(bench, text + completion[:1], healing=Healing.NONE, max_tokens=2)

    assert completion
    assert stats.num_read_tokens <= 2


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize(
    "ahead", [{"prefix": "", "suffix": "", "priority": Priority.PREFETCH}, {"prefix": "x = 1\n", "suffix": "y\n"}]
)
def test_what_is_told_of_other_files_is_read_once(
    layout: Layout, ahead: dict[str, object], make_model: MakeModel
) -> None:
    """Whatever is read with it first: nothing, as llama.vim does, or another file."""
    with open_bench(make_model("qwen"), "qwen", prompts=_build_prompts(layout)) as bench:
        request = CompletionRequest(_TEXT, _SUFFIXES[1], max_tokens=2, related=_RELATED)
        complete(bench.engine, dataclasses.replace(request, **ahead))  # type: ignore[arg-type]

        stats = complete(bench.engine, request).stats

    assert stats.num_related_tokens > 40
    assert stats.num_read_tokens <= stats.num_context_tokens - stats.num_related_tokens
