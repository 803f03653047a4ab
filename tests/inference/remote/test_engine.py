"""The engine in front of a server of llama.cpp's kind: what it sends, and what becomes of failures and endings."""

import json
import math
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from shutil import copyfile
from typing import Any, cast

import pytest

from inference.config import EngineConfig
from inference.engine.engine import Engine
from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    MidtokenError,
    ModelError,
    OverloadedError,
    ServerError,
)
from inference.healing.heal_point import encode_text
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.protocol.completion import Chunks, CompletionRequest, Extent, FinishReason, Healing, Priority
from inference.remote.executor import load_remote_engine
from tests.inference.remote.conftest import FOLDER, load_in_front
from tests.support.fake_llama_server import FakeLlamaServer
from tests.support.first_choices import find_first_tokens
from tests.support.servers import wait_until
from tests.support.sinks import CollectingSink, complete, submit, wait_until_soon

_PAUSE_S = 1.05  # in which a server may have been started again
_NOD = "class Node:\n    pass\n\n\ndef make():\n    return Nod"


@pytest.mark.parametrize("text", [_NOD, "x = self._no", "import os\nimport s", "a", "def f(x):\n    ret"])
def test_the_first_token_is_the_best_of_all_paths(
    text: str, engine: Engine, server: FakeLlamaServer, tokenizer: LoadedTokenizer
) -> None:
    tokens = find_first_tokens(server, tokenizer, text)
    complete(engine, CompletionRequest(text, max_tokens=2))
    assert [each["prompt"] for each in server.asked if "return_tokens" in each] == [tokens]


def test_a_prefetch_that_ends_while_a_person_waits_is_answered(engine: Engine, server: FakeLlamaServer) -> None:
    server.change(silent_s=0.2, delay_s=0.05)
    ahead = submit(engine, CompletionRequest(_NOD, priority=Priority.PREFETCH, document="one"))
    wait_until_soon(lambda: engine.load.num_running == 1)
    key = submit(engine, CompletionRequest(_NOD, max_tokens=10, extent=Extent.UNLIMITED, document="two"))
    assert [each.wait().finish_reason for each in (ahead, key)] == [FinishReason.PREFILLED, FinishReason.LENGTH]


def test_tokens_that_end_inside_a_character_are_neither_lost_nor_an_error(server: FakeLlamaServer) -> None:
    """llama.cpp's server sends no event for them."""
    requests = [
        CompletionRequest(_NOD[:end], max_tokens=12, extent=Extent.UNLIMITED, chunks=Chunks.TOKENS)
        for end in range(len(_NOD) - 12, len(_NOD))
    ]
    with closing(load_in_front(server.url)) as engine:
        expected = [complete(engine, each) for each in requests]
        [*_, whole] = encode_text(server.encoder, "a")
        server.inside = {*range(0, server.num_tokens, 2)} - {whole}
        found = [complete(engine, each) for each in requests]
    num_last = 0  # tokens at the ends, of characters that the limit cuts
    for ours, theirs in zip(found, expected, strict=True):
        ours_log_probs, log_probs = (
            [each for chunk in sink.chunks for each in chunk.log_probs] for sink in (ours, theirs)
        )
        num_last += len(log_probs) - len(ours_log_probs)
        assert theirs.text.startswith(ours.text)
        assert ours_log_probs == pytest.approx(log_probs[: len(ours_log_probs)])
    assert num_last < 2 * len(requests)


@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.DEADLINE, FinishReason.SUPERSEDED])
def test_what_ends_early_ends_its_work_on_the_server(
    reason: FinishReason, engine: Engine, server: FakeLlamaServer
) -> None:
    server.delay_s = 0.05
    deadline_ms = 1500 if reason is FinishReason.DEADLINE else None
    sink = submit(engine, CompletionRequest(_NOD, max_tokens=400, document="one", deadline_ms=deadline_ms))
    wait_until(lambda: any("return_tokens" in each for each in server.asked))
    if reason is FinishReason.CANCELLED:
        sink.cancelled.set()
    if reason is FinishReason.SUPERSEDED:
        complete(engine, CompletionRequest(_NOD + "e", max_tokens=1, document="one"))
    assert sink.wait().finish_reason is reason
    wait_until(lambda: server.num_closed > 0)


_PAGE = "text/html", "<html>Sign in</html>"
_EVENTS = "text/event-stream"
_JSON = "application/json", '{"error": {"message": "no"}}'


@pytest.mark.parametrize(
    ("faults", "kind", "words"),
    [
        ({"answers": [(503, *_JSON)]}, OverloadedError, r"is busy \(status 503\)"),
        ({"answers": [(429, *_PAGE)]}, OverloadedError, "is busy"),
        ({"answers": [(400, *_JSON)]}, ServerError, r"does not do what was asked \(status 400\)$"),
        ({"answers": [(401, *_JSON)]}, ServerError, "refuses the key, which is in MIDTOKEN_ENGINE_KEY"),
        ({"answers": [(302, *_PAGE)]}, ServerError, "302"),
        ({"answers": [(502, *_PAGE)]}, InferenceServerUnreachableError, "is not reached by what stands before it"),
        ({"answers": [(502, "text/html", "übel" * 2**14)]}, InferenceServerUnreachableError, r"status 502\)$"),
        (
            {"answers": [(200, *_PAGE)]},
            ServerError,
            "answers in another format; something else stands there",
        ),
        ({"answers": [(200, _EVENTS, "data: {\n\n")]}, ServerError, "sends no JSON"),
        (
            {"answers": [(200, _EVENTS, 'data: {"error": {"message": "bad"}}\n\n')]},
            ServerError,
            "has failed$",
        ),
        (
            {"answers": [(200, _EVENTS, 'data: {"completion_probabilities": [0]}\n\n')]},
            ServerError,
            "another form",
        ),
        ({"answers": [(200, _EVENTS, "data: null\n\n")]}, ServerError, "the probabilities of 0 of"),
        ({"drops_after": 3}, InferenceServerUnreachableError, "does not answer: it has closed the connection"),
        ({"ends_after": 3}, ServerError, "has ended its answer without a reason"),
        ({"falls_silent_after": 3}, InferenceServerUnreachableError, "does not answer: it was silent for too long"),
        ({"spoils": {"tokens": [10**6]}}, ServerError, "has chosen the token '1000000', which its model does not have"),
        ({"spoils": {"tokens": [-1]}}, ServerError, "has chosen the token '-1'"),
        *(({"spoils": {"tokens": [each]}}, ServerError, "another form") for each in ("x", "7", 7.9, True)),
        *(
            (
                {"spoils": {"completion_probabilities": [{"id": 7, "top_logprobs": [{"id": 7, "logprob": each}]}]}},
                ServerError,
                "another form",
            )
            for each in (0.5, 50, "1", None)
        ),
        *(
            ({"spoils": {"timings/prompt_n": each, "completion_probabilities": []}}, ServerError, "another form")
            for each in ("1", 1.5, True, [7], 10**30)
        ),
        ({"spoils": {"index": 10**6}}, ServerError, "has reported the probabilities of"),
        ({"answers": [(200, _EVENTS, 'data: {"index": 0, "tokens": NaN}\n\n')]}, ServerError, "sends no JSON"),
    ],
)
def test_what_goes_wrong_at_the_server_or_before_it_is_one_sentence_and_fails_its_request_only(
    faults: Mapping[str, Any], kind: type[Exception], words: str, engine: Engine, server: FakeLlamaServer
) -> None:
    server.change(**faults)
    with pytest.raises(kind, match=words):
        complete(engine, CompletionRequest("x = ", max_tokens=200))
    server.reset()
    assert complete(engine, CompletionRequest(_NOD, max_tokens=2)).text


def test_a_server_that_was_started_again_is_looked_at_and_refused_if_it_has_another_model(
    engine: Engine, server: FakeLlamaServer
) -> None:
    time.sleep(_PAUSE_S)
    server.model, server.num_slots = "b.gguf", 1
    for document in ("one", "two", "three"):
        complete(engine, CompletionRequest(_NOD, max_tokens=1, document=document))
    assert {each["id_slot"] for each in server.asked[-2:]} == {0}
    time.sleep(_PAUSE_S)
    server.model, server.extra_token = "c.gguf", True
    with pytest.raises(ModelError, match="makes other tokens"):
        complete(engine, CompletionRequest(_NOD, max_tokens=1))


@pytest.mark.usefixtures("server")
def test_texts_are_sampled_and_a_seed_repeats_one(engine: Engine) -> None:
    def ask(**changes: Any) -> str:
        return complete(engine, CompletionRequest("x = ", **{"max_tokens": 3, **changes})).text

    texts = [ask(temperature=1.0, seed=seed) for seed in (1, 2, 3, 3)]
    assert (len({*texts}), texts[2] == texts[3]) == (3, True)
    assert ask(temperature=1.5, max_tokens=1)  # a draw from all tokens of the row
    assert ask(temperature=1.0, seed=2**63 - 1, num_candidates=2, extent=Extent.UNLIMITED)
    assert ask(temperature=1.0, top_p=1e-6, max_tokens=1) == ask(max_tokens=1)


def _ask_for(engine: Engine, **changes: Any) -> tuple[CollectingSink, list[float]]:
    """A text of eight tokens, with its log probabilities."""
    asked = CompletionRequest("x = self._no", **{"max_tokens": 8, "extent": Extent.UNLIMITED, **changes})
    sink = complete(engine, asked)
    return sink, [log_prob for chunk in sink.chunks for log_prob in chunk.log_probs]


def test_the_text_ends_where_it_becomes_unlikely_and_the_server_stops(engine: Engine, server: FakeLlamaServer) -> None:
    server.delay_s = 0.02
    _, log_probs = _ask_for(engine)
    num_closed = server.num_closed
    sink, told = _ask_for(engine, max_tokens=200, min_probability=math.exp(log_probs[2]) * 1.01)
    assert (sink.finish_reason, told) == (FinishReason.UNLIKELY, log_probs[:3])
    wait_until(lambda: server.num_closed > num_closed)


@pytest.mark.parametrize("wrong", [None, 0.5], ids=str)  # NaN, as JSON has it, and above 1
def test_text_ends_before_what_is_no_probability(wrong: float | None, server: FakeLlamaServer) -> None:
    with closing(load_in_front(server.url)) as engine:
        whole, log_probs = _ask_for(engine)
        server.misleads = {2: {"logprob": wrong}}
        sink, told = _ask_for(engine)
        assert (sink.finish_reason, told) == (FinishReason.UNLIKELY, log_probs[:3])
        assert whole.text.startswith(sink.text)


def test_a_server_that_tells_no_probabilities_of_what_it_writes_writes_the_same_text(server: FakeLlamaServer) -> None:
    with closing(load_in_front(server.url)) as engine:
        whole, log_probs = _ask_for(engine)
        assert len(log_probs) == 8
        server.misleads = {3: {"logprob": 0.0, "top_logprobs": []}}  # as llama.cpp tells what a draft model has guessed
        sink, told = _ask_for(engine, min_probability=0.0)
        assert (sink.text, told) == (whole.text, log_probs[:4])
    server.misleads = {number: {"top_logprobs": []} for number in range(8)}
    with closing(load_in_front(server.url)) as engine:
        sink, told = _ask_for(engine, min_probability=0.9)
        assert (sink.text, told) == (whole.text, [])


@pytest.mark.usefixtures("server")
def test_several_texts_begin_with_the_best_tokens_and_one_is_explained(engine: Engine) -> None:
    asked: list[dict[str, Any]] = [{}, {"num_candidates": 3}, {"explain": True}]
    alone, several, explained = (
        complete(engine, CompletionRequest("x = self._no", max_tokens=4, **each)) for each in asked
    )
    assert (several.texts[0], explained.text, len({*several.texts})) == (alone.text, alone.text, 3)
    explanation = explained.chunks[-1].explanation
    assert explanation is not None
    masses = [each.log_mass for each in explanation.nodes if each.log_mass is not None]
    assert len(masses) > 1 > max(masses)


def test_a_limit_beyond_the_slot_is_what_fits_beside_the_prompt(engine: Engine, server: FakeLlamaServer) -> None:
    sink = complete(engine, CompletionRequest("a = [b]\n" * 400, max_tokens=4096, extent=Extent.UNLIMITED))
    body = server.asked[-1]
    assert 3 * server.n_ctx // 8 < sink.stats.num_context_tokens <= len(body["prompt"])
    assert server.n_ctx // 4 - 1 <= body["n_predict"] <= server.n_ctx - len(body["prompt"])
    assert sink.stats.was_cut


def test_the_context_is_as_long_as_the_models_folder_names(engine: Engine, server: FakeLlamaServer) -> None:
    complete(engine, CompletionRequest("a = [b]\n" * 400, max_tokens=1))
    longest = max(len(row) for each in server.asked for row in each["prompt"] if isinstance(row, list))
    assert 400 < longest <= 512


def test_a_strategy_that_masks_every_token_is_refused_by_name(engine: Engine) -> None:
    with pytest.raises(InvalidRequestError, match="the healing greedy masks"):
        complete(engine, CompletionRequest(_NOD, healing=Healing.GREEDY))


@pytest.mark.parametrize(
    ("faults", "path", "words"),
    [
        ({"extra_token": True}, "", "makes other tokens of"),
        ({}, "/v2", "404"),
        ({}, "9", "does not answer"),
        ({"lacks": "n_probs"}, "", "has reported the probabilities of 0 of 1 prompts"),
        ({"lacks": "logit_bias"}, "", "has chosen another token than"),
        ({"lacks": "return_tokens"}, "", "does not write one token"),
        ({"changes": {"total_slots": 0}}, "", "does not describe its slots"),
        ({"changes": {"default_generation_settings": None}}, "", "does not describe its slots"),
        *(
            ({"changes": {"default_generation_settings": {"n_ctx": each}}}, "", "does not describe its slots")
            for each in (-1, 0.5, True, "512", 10**30)
        ),
        ({"changes": {"total_slots": math.nan}}, "", "sends no JSON"),
        ({"changes": {"total_slots": math.inf}}, "", "sends no JSON"),
        ({"changes": {"tokens": None}}, "", "answers in another form"),
        ({"is_raw": False}, "", "tells other log probabilities for a token alone"),
    ],
)
def test_what_cannot_be_used_is_found_at_the_start(
    faults: Mapping[str, Any], path: str, words: str, server: FakeLlamaServer
) -> None:
    server.change(**faults)
    with pytest.raises(InferenceServerUnreachableError if path == "9" else ModelError, match=words):
        load_in_front("http://127.0.0.1:9" if path == "9" else f"{server.url}{path}")


def test_a_server_that_composes_no_characters_has_the_model_of_a_tokenizer_that_does(
    server: FakeLlamaServer, tmp_path: Path
) -> None:
    """As llama.cpp's with Qwen's coders. Which characters it is sent as is decided here: it gets tokens."""
    for name in ("config.json", "tokenizer_config.json"):
        copyfile(FOLDER / name, tmp_path / name)
    spec = json.loads((FOLDER / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec | {"normalizer": {"type": "NFC"}}))
    config = EngineConfig(tmp_path, engine_url=server.url, fill_in_layout="none")
    with closing(load_remote_engine(config)) as engine:
        assert complete(engine, CompletionRequest(_NOD, max_tokens=2)).text
    server.extra_token = True
    with pytest.raises(ModelError, match="makes other tokens of"):
        load_remote_engine(config)


@pytest.mark.usefixtures("server")
def test_a_panic_of_a_library_fails_its_request_only(engine: Engine) -> None:
    class PanicError(BaseException): ...

    class Panicking:
        healing, is_prefetch, deadline_ms, tenant, document = Healing.EXACT, False, None, "", ""

        @property
        def max_tokens(self) -> int:
            raise PanicError

    with pytest.raises(ServerError, match="PanicError"):
        complete(engine, cast("Any", Panicking()))
    assert complete(engine, CompletionRequest(_NOD, max_tokens=2)).text


def test_a_server_that_still_loads_is_said_to_be_busy_until_it_has(server: FakeLlamaServer) -> None:
    server.answers = [(503, *_JSON)] * 2
    with closing(load_in_front(server.url)) as engine:
        with pytest.raises(OverloadedError, match="is busy"):
            complete(engine, CompletionRequest(_NOD, max_tokens=1))
        assert complete(engine, CompletionRequest(_NOD, max_tokens=1)).text


def test_a_limit_of_the_servers_own_is_told(engine: Engine, server: FakeLlamaServer) -> None:
    server.stops_after = 3
    assert complete(engine, CompletionRequest("x = ", max_tokens=200)).finish_reason is FinishReason.LENGTH


def test_closing_fails_what_runs(server: FakeLlamaServer) -> None:
    with closing(load_in_front(server.url)) as engine:
        server.delay_s = 0.05
        sink = submit(engine, CompletionRequest(_NOD, max_tokens=400))
    with pytest.raises(MidtokenError, match="shutting down"):
        sink.wait()
