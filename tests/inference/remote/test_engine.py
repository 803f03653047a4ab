"""The engine in front of a server of llama.cpp's kind: what it sends, and what becomes of failures and endings."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference.config import EngineConfig
from inference.errors import InvalidRequestError, ModelError, OverloadedError, ServerError, ServerUnreachableError
from inference.healing.covering import build_covering
from inference.healing.heal_point import find_heal_point
from inference.healing.loaded_tokenizer import LoadedTokenizer, load_tokenizer
from inference.model.language_model import SampleRequest, Sampling
from inference.model.numpy_sampler import NumpyRow, NumpySampler
from inference.protocol.completion import CompletionRequest, FinishReason, Healing, Priority
from inference.remote.engine import RemoteEngine, load_remote_engine
from tests.support.fake_llama_server import FakeLlamaServer, run_fake_llama_server
from tests.support.sinks import CollectingSink

_FOLDER = Path("models/default").absolute()
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
    server.delay_s, server.statuses, server.extra_token, server.drops_after = 0.0, [], False, None
    server.asked, server.num_closed = [], 0
    return server


@pytest.fixture
def engine(running: tuple[FakeLlamaServer, RemoteEngine]) -> RemoteEngine:
    return running[1]


def _load(server: FakeLlamaServer) -> RemoteEngine:
    return load_remote_engine(EngineConfig(_FOLDER, engine_url=server.url, fill_in_layout="none"))


def _submit(engine: RemoteEngine, request: CompletionRequest) -> CollectingSink:
    sink = CollectingSink()
    engine.submit(request, sink)
    return sink


@pytest.mark.parametrize("text", [_NOD, "x = self._no", "import os\nimport s", "a", "def f(x):\n    ret"])
def test_the_first_token_is_the_best_of_all_paths(
    text: str, engine: RemoteEngine, server: FakeLlamaServer, tokenizer: LoadedTokenizer
) -> None:
    point = find_heal_point(tokenizer.encoder, text)
    covering = build_covering(tokenizer.encoder, tokenizer.trie, point)
    context = [*tokenizer.start_ids, *point.kept_ids, *covering.common_ids]
    tree = covering.tree.with_chain(tuple(context))
    paths = [tree.find_path(node) for node in (None, *range(len(tree.branch_ids)))]
    told = [server.find_log_probs([*context, *(tree.branch_ids[each] for each in path)]) for path in paths]
    rows = [NumpyRow(each.astype(np.float32)) for each in told]
    request = SampleRequest(tree, covering.crossings, rows, Sampling(0.0, 1.0))
    (expected,) = NumpySampler(tokenizer.vocabulary, tokenizer.trie).choose([request])[0].choices

    sink = _submit(engine, CompletionRequest(text, max_tokens=2)).wait()

    path = [tree.branch_ids[each] for each in tree.find_path(expected.crossing.node)]
    (row,) = [each["prompt"] for each in server.asked if "return_tokens" in each]
    assert row == [*context, *path, expected.token_id]
    assert (
        b"".join(map(tokenizer.trie.spell, row[len(context) :])).decode(errors="replace")[
            len(point.healed[covering.num_common_bytes :]) :
        ]
        in sink.text
    )


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


@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.DEADLINE, FinishReason.SUPERSEDED])
def test_what_ends_early_ends_its_work_on_the_server(
    reason: FinishReason, engine: RemoteEngine, server: FakeLlamaServer
) -> None:
    server.delay_s = 0.05
    deadline_ms = 1500 if reason is FinishReason.DEADLINE else None
    sink = _submit(engine, CompletionRequest(_NOD, max_tokens=400, document="one", deadline_ms=deadline_ms))
    while not any("return_tokens" in each for each in server.asked) and not sink.chunks:
        time.sleep(0.01)
    if reason is FinishReason.CANCELLED:
        sink.cancelled.set()
    if reason is FinishReason.SUPERSEDED:
        _submit(engine, CompletionRequest(_NOD + "e", max_tokens=1, document="one")).wait()
    assert sink.wait().finish_reason is reason
    while not server.num_closed:
        time.sleep(0.01)


@pytest.mark.parametrize(("status", "kind"), [(503, OverloadedError), (400, ServerError), (401, ServerError)])
def test_an_error_of_the_server_fails_its_request_only(
    status: int, kind: type[Exception], engine: RemoteEngine, server: FakeLlamaServer
) -> None:
    server.statuses = [status]
    with pytest.raises(kind, match=str(status)):
        _submit(engine, CompletionRequest(_NOD)).wait()
    assert _submit(engine, CompletionRequest(_NOD, max_tokens=2)).wait().text


def test_a_connection_that_is_lost_in_a_text_fails_the_request(engine: RemoteEngine, server: FakeLlamaServer) -> None:
    server.drops_after = 3
    with pytest.raises(ServerUnreachableError, match="does not answer"):
        _submit(engine, CompletionRequest("x = ", max_tokens=200)).wait()


@pytest.mark.parametrize(
    "changes",
    [{"temperature": 0.5}, {"num_candidates": 2}, {"explain": True}, {"healing": Healing.GREEDY}],
)
def test_what_needs_whole_distributions_is_refused_by_name(changes: dict[str, Any], engine: RemoteEngine) -> None:
    with pytest.raises(InvalidRequestError, match="needs whole distributions"):
        engine.submit(CompletionRequest(_NOD, **changes), CollectingSink())


def test_another_tokenizer_and_another_kind_of_server_are_refused(server: FakeLlamaServer) -> None:
    server.extra_token = True
    with pytest.raises(ModelError, match="makes other tokens of"):
        load_remote_engine(EngineConfig(_FOLDER, engine_url=server.url))
    with pytest.raises(ModelError, match="404"):
        load_remote_engine(EngineConfig(_FOLDER, engine_url=f"{server.url}/v1"))
    with pytest.raises(ModelError, match="does not answer"):
        load_remote_engine(EngineConfig(_FOLDER, engine_url="http://127.0.0.1:9"))


def test_closing_fails_what_runs(server: FakeLlamaServer) -> None:
    engine, server.delay_s = _load(server), 0.05
    sink = _submit(engine, CompletionRequest(_NOD, max_tokens=400))
    engine.close()
    sink.wait_for_end()
    assert "shutting down" in str(sink.error)
