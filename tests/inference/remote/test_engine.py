"""The engine in front of a server of llama.cpp's kind: what it sends, and what becomes of failures and endings."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from inference.config import EngineConfig
from inference.errors import InvalidRequestError, ModelError, OverloadedError, ServerError, ServerUnreachableError
from inference.healing.loaded_tokenizer import LoadedTokenizer, load_tokenizer
from inference.protocol.completion import CompletionRequest, FinishReason, Healing, Priority
from inference.remote.engine import RemoteEngine, load_remote_engine
from inference.remote.http_client import HttpClient
from inference.remote.llama_server import LlamaServer
from tests.support.fake_llama_server import Answer, FakeLlamaServer, run_fake_llama_server
from tests.support.first_choices import find_first_tokens
from tests.support.sinks import CollectingSink

_FOLDER = Path("models/default").absolute()
_PAUSE_S = 1.05  # in which a server may have been started again
_NOD = "class Node:\n    pass\n\n\ndef make():\n    return Nod"


@pytest.fixture(scope="module")
def tokenizer() -> LoadedTokenizer:
    return load_tokenizer(_FOLDER)


@pytest.fixture(scope="module")
def running(tokenizer: LoadedTokenizer) -> Iterator[tuple[FakeLlamaServer, RemoteEngine]]:
    with run_fake_llama_server(tokenizer.encoder, tokenizer.vocabulary.num_rows) as server:
        engine = _load(server)
        yield server, engine
        engine.close()


@pytest.fixture
def server(running: tuple[FakeLlamaServer, RemoteEngine]) -> FakeLlamaServer:
    """Does nothing wrong, and was asked nothing."""
    server = running[0]
    server.delay_s, server.answers, server.extra_token, server.model, server.num_slots = 0.0, [], False, "a.gguf", 2
    server.drops_after = server.ends_after = server.stops_after = None
    server.silent_s, server.pings = 0.0, False
    server.asked, server.num_closed = [], 0
    return server


@pytest.fixture
def engine(running: tuple[FakeLlamaServer, RemoteEngine]) -> RemoteEngine:
    return running[1]


def _load(*servers: FakeLlamaServer | str) -> RemoteEngine:
    urls = ", ".join([each if isinstance(each, str) else each.url for each in servers])
    return load_remote_engine(EngineConfig(_FOLDER, engine_url=urls, fill_in_layout="none"))


def _submit(engine: RemoteEngine, request: CompletionRequest) -> CollectingSink:
    sink = CollectingSink()
    engine.submit(request, sink)
    return sink


@pytest.mark.parametrize("text", [_NOD, "x = self._no", "import os\nimport s", "a", "def f(x):\n    ret"])
def test_the_first_token_is_the_best_of_all_paths(
    text: str, engine: RemoteEngine, server: FakeLlamaServer, tokenizer: LoadedTokenizer
) -> None:
    tokens = find_first_tokens(server, tokenizer, text)
    _submit(engine, CompletionRequest(text, max_tokens=2)).wait()
    assert [each["prompt"] for each in server.asked if "return_tokens" in each] == [tokens]


def test_a_document_keeps_to_its_slot_and_a_prefetch_is_read_only(
    engine: RemoteEngine, server: FakeLlamaServer
) -> None:
    for document in ("one", "two", "three", "one"):
        _submit(engine, CompletionRequest(_NOD, max_tokens=1, document=document)).wait()
    slots = {each["id_slot"] for each in server.asked}
    assert slots == {0, 1}
    server.asked.clear()
    sink = _submit(engine, CompletionRequest(_NOD, priority=Priority.PREFETCH)).wait()
    assert (sink.text, sink.finish_reason) == ("", FinishReason.READ)
    assert [each["n_predict"] for each in server.asked] == [0]


def test_a_tenant_gets_nothing_of_what_a_slot_has_read_for_another(
    engine: RemoteEngine, server: FakeLlamaServer
) -> None:
    server.num_slots = 1
    time.sleep(_PAUSE_S)
    num_read = []
    for tenant in ("ann", "ann", "bob", "", "ann"):
        request = CompletionRequest(_NOD, max_tokens=1, tenant=tenant)
        stats = _submit(engine, request).wait().chunks[-1].stats
        assert stats is not None
        num_read.append(stats.num_read_tokens)
    assert num_read[1] < num_read[0] == num_read[2] == num_read[3] == num_read[4]


@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.DEADLINE, FinishReason.SUPERSEDED])
def test_what_ends_early_ends_its_work_on_the_server(
    reason: FinishReason, engine: RemoteEngine, server: FakeLlamaServer
) -> None:
    server.delay_s = 0.05
    deadline_ms = 1500 if reason is FinishReason.DEADLINE else None
    sink = _submit(engine, CompletionRequest(_NOD, max_tokens=400, document="one", deadline_ms=deadline_ms))
    while not any("return_tokens" in each for each in server.asked):
        time.sleep(0.01)
    if reason is FinishReason.CANCELLED:
        sink.cancelled.set()
    if reason is FinishReason.SUPERSEDED:
        _submit(engine, CompletionRequest(_NOD + "e", max_tokens=1, document="one")).wait()
    assert sink.wait().finish_reason is reason
    while not server.num_closed:
        time.sleep(0.01)


_PAGE = "text/html", "<html>Sign in</html>"
_JSON = "application/json", '{"error": {"message": "no"}}'


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ((503, *_JSON), OverloadedError, r"is busy \(status 503\)"),
        ((429, *_PAGE), OverloadedError, "is busy"),
        ((400, *_JSON), ServerError, r"does not do what was asked \(status 400\).*no"),
        ((401, *_JSON), ServerError, "refuses the key, which is in MIDTOKEN_ENGINE_KEY"),
        ((302, *_PAGE), ServerError, "302"),
        ((502, *_PAGE), ServerUnreachableError, "is not reached by what stands before it"),
        ((502, "text/html", "übel" * 2**14), ServerUnreachableError, "status 502.*bel"),
        ((200, *_PAGE), ServerError, "answers with text/html; something else stands there, or before it"),
        ((200, "text/event-stream", "data: {\n\n"), ServerError, "sends no JSON"),
        ((200, "text/event-stream", 'data: {"error": {"message": "bad"}}\n\n'), ServerError, "has failed: 'bad'"),
        ((200, "text/event-stream", 'data: {"completion_probabilities": [0]}\n\n'), ServerError, "another form"),
        ((200, "text/event-stream", "data: null\n\n"), ServerError, "the probabilities of 0 of"),
    ],
)
def test_what_goes_wrong_at_the_server_or_before_it_is_one_sentence_and_fails_its_request_only(
    answer: Answer, kind: type[Exception], words: str, engine: RemoteEngine, server: FakeLlamaServer
) -> None:
    server.answers = [answer]
    with pytest.raises(kind, match=words):
        _submit(engine, CompletionRequest(_NOD)).wait()
    assert _submit(engine, CompletionRequest(_NOD, max_tokens=2)).wait().text


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("drops_after", ServerUnreachableError, "does not answer: it has closed the connection"),
        ("ends_after", ServerError, "has ended its answer without a reason"),
    ],
)
def test_a_text_that_breaks_off_fails_the_request(
    fault: str, kind: type[Exception], words: str, engine: RemoteEngine, server: FakeLlamaServer
) -> None:
    setattr(server, fault, 3)
    sink = _submit(engine, CompletionRequest("x = ", max_tokens=200))
    with pytest.raises(kind, match=words):
        sink.wait()


def test_a_server_that_was_started_again_is_looked_at_and_refused_if_it_has_another_model(
    engine: RemoteEngine, server: FakeLlamaServer
) -> None:
    time.sleep(_PAUSE_S)
    server.model, server.num_slots = "b.gguf", 1
    for document in ("one", "two", "three"):
        _submit(engine, CompletionRequest(_NOD, max_tokens=1, document=document)).wait()
    assert {each["id_slot"] for each in server.asked[-2:]} == {0}
    time.sleep(_PAUSE_S)
    server.model, server.extra_token = "c.gguf", True
    with pytest.raises(ModelError, match="makes other tokens"):
        _submit(engine, CompletionRequest(_NOD, max_tokens=1)).wait()


@pytest.mark.usefixtures("server")
def test_texts_are_sampled_and_a_seed_repeats_one(engine: RemoteEngine) -> None:
    def ask(**changes: Any) -> str:
        return _submit(engine, CompletionRequest("x = self._no", **{"max_tokens": 3, **changes})).wait().text

    assert len({ask(temperature=1.0, seed=seed) for seed in range(8)}) > 3
    assert ask(temperature=1.5)  # a draw from all tokens of the row
    assert ask(temperature=1.0, seed=3) == ask(temperature=1.0, seed=3) != ask(temperature=1.0, seed=4)
    assert {ask(temperature=1.0, top_p=1e-6, max_tokens=1) for _ in range(4)} == {ask(max_tokens=1)}


@pytest.mark.usefixtures("server")
def test_several_texts_begin_with_the_best_tokens_and_one_is_explained(engine: RemoteEngine) -> None:
    alone = _submit(engine, CompletionRequest(_NOD, max_tokens=4)).wait()
    several = _submit(engine, CompletionRequest(_NOD, max_tokens=4, num_candidates=3)).wait()
    explained = _submit(engine, CompletionRequest(_NOD, max_tokens=4, explain=True)).wait()
    assert (several.texts[0], explained.text) == (alone.text, alone.text)
    assert len({*several.texts}) == 3
    explanation = explained.chunks[-1].explanation
    assert explanation is not None
    masses = [each.log_mass for each in explanation.nodes if each.log_mass is not None]
    assert len(masses) > 1 > max(masses)


def test_a_server_that_tells_no_whole_rows_samples_nothing(server: FakeLlamaServer) -> None:
    async def find(http: HttpClient) -> LlamaServer:
        found = LlamaServer(http)
        found.tells_rows = False
        return found

    engine = load_remote_engine(EngineConfig(_FOLDER, engine_url=server.url, fill_in_layout="none"), find)
    for changes in ({"temperature": 0.5}, {"num_candidates": 2}, {"explain": True}):
        with pytest.raises(InvalidRequestError, match="need whole distributions, which"):
            _submit(engine, CompletionRequest(_NOD, **changes)).wait()
    engine.close()


def test_the_context_is_as_long_as_the_models_folder_names(engine: RemoteEngine, server: FakeLlamaServer) -> None:
    _submit(engine, CompletionRequest("a = [b]\n" * 400, max_tokens=1)).wait()
    longest = max(len(row) for each in server.asked for row in each["prompt"] if isinstance(row, list))
    assert 400 < longest <= 512


def test_a_strategy_that_masks_every_token_is_refused_by_name(engine: RemoteEngine) -> None:
    with pytest.raises(InvalidRequestError, match="the healing greedy masks"):
        engine.submit(CompletionRequest(_NOD, healing=Healing.GREEDY), CollectingSink())


def test_another_tokenizer_and_another_kind_of_server_are_refused(server: FakeLlamaServer) -> None:
    server.extra_token = True
    with pytest.raises(ModelError, match="makes other tokens of"):
        load_remote_engine(EngineConfig(_FOLDER, engine_url=server.url))
    with pytest.raises(ModelError, match="404"):
        load_remote_engine(EngineConfig(_FOLDER, engine_url=f"{server.url}/v1"))
    with pytest.raises(ModelError, match="does not answer"):
        load_remote_engine(EngineConfig(_FOLDER, engine_url="http://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"lacks": "n_probs"}, "has told the probabilities of 0 of 1 rows"),
        ({"lacks": "logit_bias"}, "has chosen another token than"),
        ({"lacks": "return_tokens"}, "does not write one token"),
        ({"changes": {"total_slots": 0}}, "does not describe its slots"),
        ({"changes": {"default_generation_settings": None}}, "does not describe its slots"),
        ({"changes": {"tokens": None}}, "answers in another form"),
        ({"is_raw": False}, "tells other log probabilities for a token alone"),
    ],
)
def test_what_is_lacking_is_measured_at_the_start(
    fault: dict[str, Any], words: str, tokenizer: LoadedTokenizer
) -> None:
    with run_fake_llama_server(tokenizer.encoder, tokenizer.vocabulary.num_rows) as server:
        for name, value in fault.items():
            setattr(server, name, value)
        with pytest.raises(ModelError, match=words):
            _load(server)


@pytest.mark.usefixtures("server")
def test_the_tokens_that_the_server_read_are_counted(engine: RemoteEngine) -> None:
    _submit(engine, CompletionRequest("a", max_tokens=1)).wait()  # with which the server may be looked at
    told = []
    for _ in range(2):
        stats = _submit(engine, CompletionRequest(_NOD, max_tokens=1)).wait().chunks[-1].stats
        assert stats is not None
        told.append((stats.num_read_tokens, stats.num_context_tokens))
    (first, num_context), again = told
    assert first > num_context / 2
    assert again == (1, num_context)


def test_a_document_keeps_to_one_of_several_servers_and_another_takes_its_place(
    server: FakeLlamaServer, tokenizer: LoadedTokenizer
) -> None:
    def ask(document: str) -> str:
        return _submit(several, CompletionRequest(_NOD, max_tokens=8, document=document)).wait().text

    with run_fake_llama_server(tokenizer.encoder, tokenizer.vocabulary.num_rows) as other:
        several = _load(server, other, "http://127.0.0.1:9")
        homes: dict[str, list[list[bool]]] = {}
        for document in [*"abcdefgh"] * 2:
            server.asked, other.asked = [], []
            text = ask(document)
            homes.setdefault(document, []).append([bool(server.asked), bool(other.asked)])
        assert all(first == second and sum(first) == 1 for first, second in homes.values())
        document = next(document for document, ((is_here, _), _) in homes.items() if is_here)
        server.drops_after = 1  # in the middle of a text, when it is too late for another one
        with pytest.raises(ServerUnreachableError):
            ask(document)
        server.drops_after, server.answers = 0, [(503, *_JSON)]
        assert ask(document) == text
        server.answers, server.drops_after = [], None
        server.asked.clear()
        assert ask(document) == text
        assert not server.asked  # for a while
    server.drops_after = 0
    with pytest.raises(ServerUnreachableError):
        ask("a")
    several.close()


def _find_document(several: RemoteEngine, server: FakeLlamaServer) -> str:
    """A document that keeps to the server."""
    for document in map(str, range(99)):
        server.asked.clear()
        _submit(several, CompletionRequest(_NOD, max_tokens=1, document=document)).wait()
        if server.asked:
            return document
    raise AssertionError("none keeps to it")


def test_a_silent_server_is_left_though_each_key_supersedes_its_request(
    server: FakeLlamaServer, tokenizer: LoadedTokenizer
) -> None:
    with run_fake_llama_server(tokenizer.encoder, tokenizer.vocabulary.num_rows) as other:
        several, sinks, most = _load(server, other), [CollectingSink()], 0
        document = _find_document(several, server)
        time.sleep(_PAUSE_S)
        server.silent_s = 60.0
        while len(sinks) < 40 and not any(sink.chunks and sink.text for sink in sinks):
            sinks.append(_submit(several, CompletionRequest(_NOD, max_tokens=1, document=document)))
            most = max(most, server.num_silent)
            time.sleep(0.1)
        several.close()
    assert any(sink.chunks and sink.text for sink in sinks)
    assert most <= 4  # one that asks who it is, and those of the last requests


@pytest.mark.parametrize("status", [400, 404, 500])
def test_a_sick_server_and_one_with_another_model_are_passed_over(
    status: int, server: FakeLlamaServer, tokenizer: LoadedTokenizer
) -> None:
    with run_fake_llama_server(tokenizer.encoder, tokenizer.vocabulary.num_rows) as other:
        several = _load(server, other)
        document = _find_document(several, server)
        server.answers = [(status, *_JSON)]
        assert _submit(several, CompletionRequest(_NOD, max_tokens=2, document=document)).wait().text
        several.close()
        other.extra_token = True
        _load(other, server).close()


def test_a_server_that_still_loads_is_waited_for(server: FakeLlamaServer) -> None:
    server.answers = [(503, *_JSON)]
    _load(server).close()
    assert not server.answers


def test_a_silent_server_does_not_hold_up_the_start(server: FakeLlamaServer, tokenizer: LoadedTokenizer) -> None:
    with run_fake_llama_server(tokenizer.encoder, tokenizer.vocabulary.num_rows) as other:
        other.silent_s = 20.0
        with closing(_load(other, server)) as several:
            assert other.num_silent == 1
            assert _submit(several, CompletionRequest(_NOD, max_tokens=1)).wait().text


def test_a_failure_that_lasts_is_logged_once(server: FakeLlamaServer, caplog: pytest.LogCaptureFixture) -> None:
    with closing(_load(server)) as engine:
        server.drops_after = 0
        for _ in range(3):
            with pytest.raises(ServerUnreachableError):
                _submit(engine, CompletionRequest(_NOD)).wait()
    assert len(caplog.messages) == 1


def test_a_limit_of_the_servers_own_is_told(engine: RemoteEngine, server: FakeLlamaServer) -> None:
    server.stops_after = 3
    assert _submit(engine, CompletionRequest("x = ", max_tokens=200)).wait().finish_reason is FinishReason.LENGTH


async def test_a_server_that_only_pings_is_silent(server: FakeLlamaServer) -> None:
    server.pings, client = True, HttpClient(server.url, silent_s=0.2)
    with pytest.raises(ServerUnreachableError, match="silent for too long"):
        await asyncio.wait_for(anext(client.stream("completion", {"cache_prompt": True, "stream": True})), 10)
    await client.close()


def test_what_comes_while_the_engine_closes_is_refused(server: FakeLlamaServer) -> None:
    class Late:
        @property
        def healing(self) -> Healing:
            leaving.close()
            return Healing.EXACT

    leaving, late = _load(server), cast("Any", Late())
    with pytest.raises(OverloadedError, match="shutting down"):
        leaving.submit(late, CollectingSink())


def test_closing_fails_what_runs(server: FakeLlamaServer) -> None:
    engine, server.delay_s = _load(server), 0.05
    sink = _submit(engine, CompletionRequest(_NOD, max_tokens=400))
    engine.close()
    sink.wait_for_end()
    assert "shutting down" in str(sink.error)
