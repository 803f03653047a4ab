"""The engine in front of several servers: which of them a document keeps to, and who takes the place of a sick one."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, cast

import pytest

from inference.engine.engine import Engine
from inference.errors import (
    InferenceServerUnreachableError,
)
from inference.protocol.completion import CompletionRequest
from inference.remote import replicas
from inference.remote.http_client import HttpClient
from inference.remote.replicas import Replica
from tests.inference.remote.conftest import load_in_front
from tests.support.fake_llama_server import FakeLlamaServer
from tests.support.sinks import CollectingSink, complete, submit

_PAUSE_S = 1.05  # in which a server may have been started again


_NOD = "class Node:\n    pass\n\n\ndef make():\n    return Nod"


@pytest.fixture
def several(server: FakeLlamaServer, other: FakeLlamaServer) -> Iterator[Engine]:
    """An engine in front of both servers, and of one that is down."""
    with closing(load_in_front(server.url, other.url, "http://127.0.0.1:9")) as engine:
        yield engine


_JSON = "application/json", '{"error": {"message": "no"}}'


def _find_documents(several: Engine, server: FakeLlamaServer) -> Iterator[str]:
    """Those of 16 documents that keep to the server."""
    for document in map(str, range(16)):
        server.asked.clear()
        complete(several, CompletionRequest(_NOD, max_tokens=1, document=document))
        if server.asked:
            yield document


def test_a_document_keeps_to_one_of_several_servers_and_another_takes_its_place(
    several: Engine, server: FakeLlamaServer, other: FakeLlamaServer
) -> None:
    def ask() -> str:
        return complete(several, CompletionRequest(_NOD, max_tokens=8, document=document)).text

    documents = [*_find_documents(several, server)]
    assert [*_find_documents(several, server)] == documents
    assert len([*_find_documents(several, other), *documents]) == 16
    document, *_ = documents
    text = ask()
    server.drops_after = 1  # in the middle of a text, when it is too late for another one
    with pytest.raises(InferenceServerUnreachableError):
        ask()
    server.change(drops_after=0, answers=[(503, *_JSON)])
    assert ask() == text
    server.reset()
    assert (ask(), server.asked) == (text, [])  # for a while
    for each in (server, other):
        each.drops_after = 0
    with pytest.raises(InferenceServerUnreachableError):
        ask()


def test_a_silent_server_is_left_though_each_key_supersedes_its_request(
    several: Engine, server: FakeLlamaServer
) -> None:
    sinks, most, document = [CollectingSink()], 0, next(_find_documents(several, server))
    time.sleep(_PAUSE_S)
    server.silent_s = 60.0
    while len(sinks) < 400 and not any(sink.chunks and sink.text for sink in sinks):
        sinks.append(submit(several, CompletionRequest(_NOD, max_tokens=1, document=document)))
        most = max(most, server.num_silent)
        time.sleep(0.1)
    several.close()
    assert any(sink.chunks and sink.text for sink in sinks)
    assert most <= 4  # one that asks who it is, and those of the last requests


def test_another_server_takes_the_place_of_one_that_falls_silent_in_a_request(
    several: Engine, server: FakeLlamaServer
) -> None:
    document = next(_find_documents(several, server))
    text = complete(several, CompletionRequest(_NOD, max_tokens=2, document=document)).text
    server.falls_silent_after = 0
    for _ in range(2):
        assert complete(several, CompletionRequest(_NOD, max_tokens=2, document=document)).text == text
    assert not several.problem


@pytest.mark.parametrize("streams", [False, True])
async def test_a_server_that_only_says_who_it_is_is_slow_and_one_that_generates_is_not(
    streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_SLOW_S", 0.0)
    http = HttpClient("http://127.0.0.1:9")
    replica, later = Replica(http, []), time.monotonic() + 1000
    replica._server, http.heard_at = cast("Any", object()), later
    http.streamed_at = later if streams else http.streamed_at

    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(replica.ask(asyncio.Event().wait, 1.0), 0.01)
    await http.close()
    assert (replica.avoided_until > time.monotonic()) is not streams


@pytest.mark.parametrize("status", [400, 404, 500])
def test_a_sick_server_is_passed_over(status: int, several: Engine, server: FakeLlamaServer) -> None:
    document = next(_find_documents(several, server))
    server.answers = [(status, *_JSON)]
    assert complete(several, CompletionRequest(_NOD, max_tokens=2, document=document)).text


@pytest.mark.parametrize("faults", [{"silent_s": 20.0}, {"extra_token": True}], ids=str)
def test_one_server_that_will_do_is_enough_for_a_start(
    faults: Mapping[str, Any], server: FakeLlamaServer, other: FakeLlamaServer
) -> None:
    other.change(**faults)
    with closing(load_in_front(other.url, server.url)) as several:
        assert other.num_silent == (1 if other.silent_s else 0)
        assert complete(several, CompletionRequest(_NOD, max_tokens=1)).text
