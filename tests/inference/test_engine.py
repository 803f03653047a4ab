import codecs
import dataclasses
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from inference.config import EngineConfig
from inference.engine import Engine, load_engine
from inference.errors import InvalidRequestError, ModelError, OverloadedError, ServerError
from inference.kv_cache import SequenceCache
from inference.runner import Runner, Step, load_runner
from inference.sampler import Sampler
from inference.tree import TokenTree
from inference.wire import CompletionRequest, Extent, FinishReason, Healing
from tests.inference.conftest import MakeModel
from tests.sinks import CollectingSink, complete, submit
from tests.toys import FIM_NAMES, KINDS, ToyTokenizer, build_prompts, texts, toy_tokenizer

_NODE = "class Node:\n    def next(self) -> Nod"
_LONG = "x = 1\n" * 200
_UNBOUNDED = Extent.BLOCK  # in a prefix without indentation nothing ends a block


class _WatchedCache(SequenceCache):
    """Remembers which tokens it keeps."""

    token_ids: list[int]

    def keep(self, tree: TokenTree, node: int | None) -> None:
        super().keep(tree, node)
        self.token_ids += [*tree.chain_ids, *(tree.branch_ids[branch] for branch in tree.find_path(node))]


class _WatchedRunner(Runner):
    """A real runner that a test can look into, hold up and break."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model, torch.device("cpu"))
        self.caches: list[_WatchedCache] = []  # one for each request, in the order in which they began to run
        self.batch_sizes: list[int] = []
        self.before_forward: Callable[[], None] = lambda: None

    def new_cache(self) -> SequenceCache:
        cache = _WatchedCache(self._shape, self._dtype, self._device)
        cache.token_ids = []
        self.caches.append(cache)
        return cache

    def forward(self, steps: Sequence[Step]) -> torch.Tensor:
        self.before_forward()
        self.batch_sizes.append(len(steps))
        return super().forward(steps)


@dataclasses.dataclass
class _Clock:
    """Stands still unless it is set."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass
class _Bench:
    """An engine with its parts in reach."""

    toy: ToyTokenizer
    runner: _WatchedRunner
    engine: Engine
    clock: _Clock


def _build_bench(folder: Path, kind: str, dtype: str = "float64", **settings_: int) -> _Bench:
    toy, clock = toy_tokenizer(kind), _Clock()
    config = EngineConfig(folder, dtype=dtype, **settings_)
    runner = _WatchedRunner(load_runner(config)._model)
    sampler = Sampler(toy.vocabulary, toy.trie, runner.vocab_size, torch.device("cpu"))
    return _Bench(toy, runner, Engine(config, runner, sampler, build_prompts(toy), clock), clock)


@pytest.fixture
def bench(make_model: MakeModel) -> Iterator[_Bench]:
    bench = _build_bench(make_model("qwen"), "qwen")
    with closing(bench.engine):
        yield bench


@pytest.fixture
def small_bench(make_model: MakeModel) -> Iterator[_Bench]:
    """Room for two sequences and one more that waits."""
    bench = _build_bench(make_model("qwen"), "qwen", max_sequences=2, max_waiting=1)
    with closing(bench.engine):
        yield bench


# What is said


def _plain_model(folder: Path) -> transformers.PreTrainedModel:
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    ).eval()


@pytest.mark.parametrize("kind", ["qwen", "llama3", "llama2"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
@pytest.mark.parametrize("prefix", ["import os\n\ndef walk(", "x = 1\n", "# é"])
def test_without_healing_a_completion_is_what_generate_says(
    kind: str, family: str, prefix: str, make_model: MakeModel
) -> None:
    toy, folder = toy_tokenizer(kind), make_model(kind, family)
    context = [*(toy.encoder.start_ids or (toy.vocabulary.special_tokens["<|endoftext|>"],)), *toy.encode(prefix)]
    bad_ids = [[row] for row in range(toy.num_rows - 7, toy.num_rows)]  # padding: no tokenizer could decode it
    generated = (
        _plain_model(folder)
        .generate(
            torch.tensor([context]),
            max_new_tokens=12,
            do_sample=False,
            bad_words_ids=bad_ids,
            eos_token_id=sorted(toy.vocabulary.special_ids),
            pad_token_id=0,
        )[0, len(context) :]
        .tolist()
    )
    expected = codecs.getincrementaldecoder("utf-8")("replace").decode(toy.join(generated))
    bench = _build_bench(folder, kind)
    with closing(bench.engine):
        sink = complete(bench.engine, CompletionRequest(prefix, max_tokens=12, healing=Healing.NONE, extent=_UNBOUNDED))

    assert sink.text == expected[: len(sink.text)]
    assert sink.finish_reason is FinishReason.EXTENT or sink.text == expected


def _complete_slowly(toy: ToyTokenizer, plain: transformers.PreTrainedModel, prefix: str, num_new: int) -> bytes:
    """The exact choice and what follows it, one plain pass of transformers for each path and each token."""
    prompt = build_prompts(toy).build(CompletionRequest(prefix), 1024)
    tree = prompt.covering.build_tree(prompt.context_ids)
    is_text = torch.tensor([bool(token) for token in toy.vocabulary.token_bytes])
    is_text[sorted(toy.vocabulary.special_ids)] = True

    def score(ids: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            logits = plain(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, -1]
        return torch.log_softmax(logits.masked_fill(~is_text, -torch.inf), dim=-1)

    best: tuple[float, list[int], bytes] = (-torch.inf, [], b"")
    for exit_ in prompt.covering.exits:
        path = [tree.branch_ids[branch] for branch in tree.find_path(exit_.node)]
        log_prob = sum(
            float(score([*prompt.context_ids, *path[:index]])[token_id]) for index, token_id in enumerate(path)
        )
        row = score([*prompt.context_ids, *path])
        for token_id, token in enumerate(toy.vocabulary.token_bytes):
            leaves = token.startswith(exit_.rest) and token != exit_.rest if exit_.rest else bool(is_text[token_id])
            if leaves and log_prob + float(row[token_id]) > best[0]:
                best = (log_prob + float(row[token_id]), [*path, token_id], prompt.healed)
    _, chosen, healed = best
    num_tokens = len(chosen) - 1 + num_new
    while len(chosen) < num_tokens and chosen[-1] not in toy.vocabulary.special_ids:
        chosen.append(int(score([*prompt.context_ids, *chosen]).argmax()))
    return toy.join(chosen)[len(healed) :]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefix", [_NODE, "for lin", "x = 'caf", "    if not sel", "é", ""])
def test_an_exact_completion_is_the_best_of_the_whole_covering_and_then_the_best_tokens(
    kind: str, prefix: str, make_model: MakeModel
) -> None:
    folder = make_model(kind)
    bench = _build_bench(folder, kind)
    with closing(bench.engine):
        sink = complete(bench.engine, CompletionRequest(prefix, max_tokens=3, extent=_UNBOUNDED))

    expected = codecs.getincrementaldecoder("utf-8")("replace").decode(
        _complete_slowly(bench.toy, _plain_model(folder), prefix, 3)
    )
    assert sink.text == expected[: len(sink.text)]
    assert sink.finish_reason is FinishReason.EXTENT or sink.text == expected


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
    """The prefix section and what stands behind the last marker, as bytes."""
    prefix_id, middle_id, suffix_id = (toy.vocabulary.special_tokens[name] for name in FIM_NAMES)
    ids = list(token_ids)[1:]  # the start token
    if ids and ids[0] == prefix_id:
        middle = ids.index(middle_id)
        ids = ids[1 : ids.index(suffix_id)] + ids[middle + 1 :]
    assert toy.vocabulary.special_ids.isdisjoint(ids)
    return toy.join(ids)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["qwen", "gpt2", "llama3", "llama2", "metaspace"])
def test_a_completion_always_continues_exactly_the_typed_bytes(kind: str, make_model: MakeModel) -> None:
    """10,000 documents and cursors in full, over five kinds of tokenizer, all strategies, twenty at a time.

    What the model was shown and has said begins with the typed bytes, and what it said behind them is
    what was sent, in chunks or not.
    """
    bench = _build_bench(make_model(kind), kind, dtype="float32", max_sequences=20)

    @settings(
        max_examples=settings.default.max_examples,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(documents=st.lists(_documents, min_size=20, max_size=20))
    def check(documents: list[_Document]) -> None:
        bench.runner.caches.clear()
        sinks = [submit(bench.engine, _request_of(document)) for document in documents]
        for sink in sinks:
            sink.wait()
        for document, sink, cache in zip(documents, sinks, bench.runner.caches, strict=True):
            lead = bench.toy.encoder.find_lead(document[0])
            typed = (
                (lead if document[0] or _request_of(document).healing in (Healing.EXACT, Healing.GREEDY) else "")
                + document[0]
            ).encode()
            spelled = _spelled(bench.toy, cache.token_ids)
            assert spelled.startswith(typed) or typed.startswith(spelled), document
            said = codecs.getincrementaldecoder("utf-8")("replace").decode(spelled[len(typed) :])
            assert sink.text.startswith(said) or said.startswith(sink.text), document
            assert sink.chunks[0].healed_bytes <= len(document[0].encode())

    with closing(bench.engine):
        check()


# Many at once


def _mixed_requests() -> list[CompletionRequest]:
    prefixes = [_NODE, "for lin", "x = 'caf", _LONG + "y = x", "", "import tex", "\n\n  "]
    return [
        CompletionRequest(
            prefix, suffix, 6, healing, extent=_UNBOUNDED, temperature=temperature, seed=5, num_candidates=num
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


def test_requests_together_get_the_answers_that_each_gets_alone(bench: _Bench) -> None:
    requests = _mixed_requests()
    alone = [complete(bench.engine, request).texts for request in requests]
    bench.runner.batch_sizes.clear()

    together = [sink.wait().texts for sink in [submit(bench.engine, request) for request in requests]]

    assert together == alone
    assert max(bench.runner.batch_sizes) > 4


def test_a_long_context_is_read_in_pieces_and_answered_as_in_one(make_model: MakeModel) -> None:
    """A context of 800 tokens, by an engine that reads 512 at a time; transformers is the oracle."""
    folder = make_model("qwen", max_position_embeddings=2048)
    bench = _build_bench(folder, "qwen")
    prefix = "".join(f"name_{index} = {index}\n" for index in range(90)) + "nam"
    with closing(bench.engine):
        sink = complete(bench.engine, CompletionRequest(prefix, max_tokens=3, extent=_UNBOUNDED))

    expected = _complete_slowly(bench.toy, _plain_model(folder), prefix, 3)
    assert sink.stats.num_context_tokens > 512
    assert sink.stats.num_forwards == 4
    assert sink.text == expected.decode()


def test_a_request_that_reads_a_long_context_does_not_stop_the_others(make_model: MakeModel) -> None:
    bench = _build_bench(make_model("qwen", max_position_embeddings=4096), "qwen", max_context_tokens=3000)
    long_prefix = "".join(f"name_{index} = {index}\n" for index in range(300))
    with closing(bench.engine):
        hold = threading.Event()
        bench.runner.before_forward = lambda: assert_set(hold)
        sinks = [submit(bench.engine, CompletionRequest(prefix, max_tokens=2)) for prefix in (long_prefix, "x")]
        hold.set()
        stats = [sink.wait().stats for sink in sinks]

    assert stats[0].num_forwards > 4
    assert stats[1].num_forwards <= 3


def assert_set(event: threading.Event) -> None:
    assert event.wait(60)


def test_a_seed_gives_the_same_completion_again_and_another_seed_another(bench: _Bench) -> None:
    request = CompletionRequest("x = ", max_tokens=12, temperature=1.5, extent=_UNBOUNDED)

    answers = [complete(bench.engine, dataclasses.replace(request, seed=seed)).text for seed in (1, 1, 2)]

    assert answers[0] == answers[1] != answers[2]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_candidate_is_answered_and_ends_once(bench: _Bench, temperature: float) -> None:
    request = CompletionRequest(
        "x = ", max_tokens=5, num_candidates=4, temperature=temperature, seed=3, extent=_UNBOUNDED
    )

    sink = complete(bench.engine, request)

    ends = [chunk.candidate for chunk in sink.chunks if chunk.finish_reason]
    assert sorted(ends) == [0, 1, 2, 3]
    assert [chunk.is_last for chunk in sink.chunks] == [False] * (len(sink.chunks) - 1) + [True]


def test_the_first_greedy_candidate_is_the_greedy_completion(bench: _Bench) -> None:
    request = CompletionRequest(_NODE, max_tokens=5, extent=_UNBOUNDED)

    several = complete(bench.engine, dataclasses.replace(request, num_candidates=3)).texts

    assert several[0] == complete(bench.engine, request).text
    assert len(several) == 3


def test_sampled_candidates_are_those_of_their_own_seeds(bench: _Bench) -> None:
    request = CompletionRequest("x = ", max_tokens=6, temperature=1.0, seed=7, extent=_UNBOUNDED)

    several = complete(bench.engine, dataclasses.replace(request, num_candidates=3)).texts

    assert several == [complete(bench.engine, dataclasses.replace(request, seed=7 + index)).text for index in range(3)]


# What ends a request


def test_a_cancelled_request_is_gone_after_the_step_that_runs(bench: _Bench) -> None:
    sink = CollectingSink()
    steps: list[int] = []

    def cancel_in_the_third() -> None:
        steps.append(1)
        if len(steps) == 3:
            sink.cancelled.set()

    bench.runner.before_forward = cancel_in_the_third
    bench.engine.submit(CompletionRequest("x = ", max_tokens=200, extent=_UNBOUNDED, healing=Healing.NONE), sink)
    sink.wait()

    assert sink.finish_reason is FinishReason.CANCELLED
    assert len(steps) == 3


def test_a_request_that_waits_can_be_cancelled_without_a_step(small_bench: _Bench) -> None:
    hold, waiting = threading.Event(), CollectingSink()
    small_bench.runner.before_forward = lambda: assert_set(hold)
    running = submit(small_bench.engine, CompletionRequest("x", max_tokens=2, num_candidates=2))
    small_bench.engine.submit(CompletionRequest("y", max_tokens=2), waiting)
    waiting.cancelled.set()
    hold.set()

    assert waiting.wait().finish_reason is FinishReason.CANCELLED
    assert waiting.stats.num_forwards == 0
    running.wait()


def test_cancelling_makes_room_for_the_one_that_waits(small_bench: _Bench) -> None:
    hold = threading.Event()
    small_bench.runner.before_forward = lambda: assert_set(hold)
    running = submit(small_bench.engine, CompletionRequest("x", max_tokens=300, num_candidates=2, extent=_UNBOUNDED))
    waiting = submit(small_bench.engine, CompletionRequest("y", max_tokens=2))
    running.cancelled.set()
    hold.set()

    assert waiting.wait().finish_reason is not FinishReason.CANCELLED


def test_what_was_said_by_the_deadline_is_sent(bench: _Bench) -> None:
    def let_time_pass() -> None:
        bench.clock.now += 0.03

    bench.runner.before_forward = let_time_pass
    request = CompletionRequest(
        "x = ", max_tokens=200, deadline_ms=100, extent=_UNBOUNDED, healing=Healing.NONE, temperature=1.0, seed=4
    )
    sink = complete(bench.engine, request)

    assert sink.finish_reason is FinishReason.DEADLINE
    assert sink.stats.num_tokens == sink.stats.num_forwards == 4
    assert sink.text
    assert sink.stats.total_ms == pytest.approx(120)


def test_an_engine_without_room_refuses(small_bench: _Bench) -> None:
    hold, is_running = threading.Event(), threading.Event()
    small_bench.runner.before_forward = lambda: (is_running.set(), assert_set(hold))[1]
    taken = [submit(small_bench.engine, CompletionRequest("x", max_tokens=2))]
    assert_set(is_running)
    taken += [submit(small_bench.engine, CompletionRequest("x", max_tokens=2)) for _ in range(2)]

    with pytest.raises(OverloadedError, match="wait already"):
        submit(small_bench.engine, CompletionRequest("x"))

    hold.set()
    for sink in taken:
        sink.wait()
    complete(small_bench.engine, CompletionRequest("x", max_tokens=2))


def test_a_request_that_could_never_run_is_refused(small_bench: _Bench) -> None:
    with pytest.raises(OverloadedError, match="3 sequences"):
        complete(small_bench.engine, CompletionRequest("x", num_candidates=3))


def test_healed_bytes_that_may_be_spelled_one_by_one_need_room_too(make_model: MakeModel) -> None:
    bench = _build_bench(make_model("qwen"), "qwen", cache_tokens=120)
    request = CompletionRequest("x = " + "ab" * 40, max_tokens=50, healing=Healing.GREEDY)
    with closing(bench.engine), pytest.raises(OverloadedError, match="120"):
        complete(bench.engine, request)


def test_more_tokens_than_the_model_sees_are_refused(bench: _Bench) -> None:
    with pytest.raises(InvalidRequestError, match="512"):
        complete(bench.engine, CompletionRequest("x", max_tokens=510))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("healing", Healing)
@pytest.mark.parametrize("prefix", ["word " * 600 + "wor", "x = '" + "ab" * 400, "x = 1\n" + " " * 900])
def test_no_token_stands_beyond_the_models_window(
    family: str, healing: Healing, prefix: str, make_model: MakeModel
) -> None:
    """GPT-2 has a table of positions and breaks on the first one beyond."""
    bench = _build_bench(make_model("qwen", family), "qwen")
    furthest = 0

    def look() -> None:
        nonlocal furthest
        furthest = max(furthest, *(cache.num_tokens for cache in bench.runner.caches))

    bench.runner.before_forward = look
    with closing(bench.engine):
        complete(bench.engine, CompletionRequest(prefix, "\nx = 2\n" * 50, 100, healing, extent=_UNBOUNDED))

    assert furthest < 512


def test_max_tokens_counts_what_goes_beyond_the_healed_bytes(bench: _Bench) -> None:
    for healing in Healing:
        sink = complete(bench.engine, CompletionRequest("x = _num_padd", max_tokens=1, healing=healing))

        assert sink.finish_reason in (FinishReason.END, FinishReason.EXTENT) or sink.text, healing


# What goes wrong


def test_a_step_that_fails_fails_its_requests_and_the_engine_lives_on(bench: _Bench) -> None:
    def fail() -> None:
        raise RuntimeError("out of memory")

    bench.runner.before_forward = fail
    sinks = [submit(bench.engine, CompletionRequest("x")) for _ in range(3)]
    for sink in sinks:
        sink.wait_for_end()
        assert isinstance(sink.error, ServerError)
        assert "out of memory" in str(sink.error)

    bench.runner.before_forward = lambda: None
    assert complete(bench.engine, CompletionRequest("x", max_tokens=2)).chunks


class _BrokenSink(CollectingSink):
    """Raises from one of its methods."""

    def __init__(self, broken: str) -> None:
        super().__init__()
        self.raised = threading.Event()
        setattr(self, broken, self._break)

    def _break(self, *_args: object) -> None:
        self.raised.set()
        raise RuntimeError("nobody there")


@pytest.mark.parametrize("broken", ["send", "fail", "is_cancelled"])
def test_a_sink_that_raises_ends_its_own_request_only(bench: _Bench, broken: str) -> None:
    sink = _BrokenSink(broken)
    max_tokens = 510 if broken == "fail" else 3  # the first is refused, through `fail`
    bench.engine.submit(CompletionRequest("x", max_tokens=max_tokens), sink)
    other = submit(bench.engine, CompletionRequest("x", max_tokens=3))

    assert other.wait().chunks
    assert_set(sink.raised)
    assert complete(bench.engine, CompletionRequest("y", max_tokens=2)).chunks


def test_closing_answers_every_request_that_was_taken(small_bench: _Bench) -> None:
    hold = threading.Event()
    small_bench.runner.before_forward = lambda: assert_set(hold)
    sinks = [submit(small_bench.engine, CompletionRequest("x", max_tokens=300, extent=_UNBOUNDED)) for _ in range(3)]
    closer = threading.Thread(target=small_bench.engine.close)
    closer.start()
    hold.set()
    closer.join()

    for sink in sinks:
        sink.wait_for_end()
        assert sink.error is None or "shutting down" in str(sink.error)


def test_a_closed_engine_refuses(make_model: MakeModel) -> None:
    bench = _build_bench(make_model("qwen"), "qwen")
    bench.engine.close()

    with pytest.raises(OverloadedError, match="shutting down"):
        submit(bench.engine, CompletionRequest("x"))


# What it is built from


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_folder_gives_an_engine_that_says_what_its_parts_say(kind: str, make_model: MakeModel) -> None:
    folder, request = make_model(kind), CompletionRequest("x = tex", "\n", max_tokens=4)
    bench = _build_bench(folder, kind, dtype="float32")
    with closing(bench.engine), closing(load_engine(EngineConfig(folder))) as engine:
        assert complete(engine, request).text == complete(bench.engine, request).text


def test_a_tokenizer_without_start_token_begins_with_the_end_token(make_model: MakeModel) -> None:
    """transformers' own healing crashes where there is no BOS (#36210)."""
    bench = _build_bench(make_model("gpt2"), "gpt2")
    with closing(bench.engine):
        complete(bench.engine, CompletionRequest("", max_tokens=2))

    assert bench.runner.caches[0].token_ids[0] == bench.toy.vocabulary.special_tokens["<|endoftext|>"]


def test_a_folder_whose_parts_do_not_fit_is_a_model_error(make_model: MakeModel, tmp_path: Path) -> None:
    shutil.copytree(make_model("qwen"), tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()

    with pytest.raises(ModelError):
        load_engine(EngineConfig(tmp_path / "model"))


def test_an_unknown_fim_order_is_a_model_error(make_model: MakeModel) -> None:
    with pytest.raises(ModelError, match="fim_order"):
        load_engine(EngineConfig(make_model("qwen"), fim_order="mps"))


@pytest.mark.parametrize(("family", "changes"), [("gemma2", {"num_key_value_heads": 2, "head_dim": 8})])
def test_a_model_that_cannot_step_is_refused_while_loading(
    family: str, changes: dict[str, object], make_model: MakeModel
) -> None:
    with pytest.raises(ModelError, match="attention"):
        load_engine(EngineConfig(make_model("qwen", family, **changes)))


def test_an_explanation_comes_with_the_last_chunk_where_it_was_asked_for(bench: _Bench) -> None:
    asked = complete(bench.engine, CompletionRequest(_NODE, max_tokens=3, explain=True))
    not_asked = complete(bench.engine, CompletionRequest(_NODE, max_tokens=3))

    assert asked.chunks[-1].explanation is not None
    assert not_asked.chunks[-1].explanation is None
    assert asked.text == not_asked.text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("healing", Healing)
@pytest.mark.parametrize("prefix", ["", "é", "x = '😀", _NODE])
def test_every_strategy_can_be_explained_everywhere(
    kind: str, healing: Healing, prefix: str, make_model: MakeModel
) -> None:
    bench = _build_bench(make_model(kind), kind)
    with closing(bench.engine):
        sink = complete(bench.engine, CompletionRequest(prefix, max_tokens=2, healing=healing, explain=True))

    assert sink.chunks[-1].explanation is not None
