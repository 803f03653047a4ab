"""The slots of llama.cpp's server: which one a request uses, and what stays cached there."""

import itertools
from contextlib import closing

import pytest

from inference.engine.engine import Engine
from inference.errors import (
    OverloadedError,
)
from inference.protocol.completion import CompletionRequest, Extent, FinishReason, Priority
from tests.inference.remote.conftest import load_in_front
from tests.support.fake_llama_server import FakeLlamaServer
from tests.support.sinks import complete, submit

_NOD = "class Node:\n    pass\n\n\ndef make():\n    return Nod"


def test_a_document_keeps_to_its_slot_and_a_prefetch_is_read_only(engine: Engine, server: FakeLlamaServer) -> None:
    for document in ("one", "two", "three", "one"):
        complete(engine, CompletionRequest(_NOD, max_tokens=1, document=document))
    assert {each["id_slot"] for each in server.asked} == {0, 1}
    server.asked.clear()
    sink = complete(engine, CompletionRequest(_NOD, priority=Priority.PREFETCH))
    assert (sink.text, sink.finish_reason) == ("", FinishReason.PREFILLED)
    assert [each["n_predict"] for each in server.asked] == [0]


def test_requests_without_a_document_run_at_once_each_on_a_slot_of_its_own(server: FakeLlamaServer) -> None:
    texts = ("def make():\n    return ", "import os\nimport s")
    with closing(load_in_front(server.url)) as engine:
        server.asked.clear()
        server.delay_s = 0.05
        sinks = [submit(engine, CompletionRequest(text, max_tokens=8, extent=Extent.UNLIMITED)) for text in texts]
        assert all(sink.wait().text for sink in sinks)
    slots: dict[tuple[int, ...], set[int]] = {}
    for each in server.asked:
        row = each["prompt"][0] if isinstance(each["prompt"][0], list) else each["prompt"]
        slots.setdefault((*row[:2],), set()).add(each["id_slot"])
    assert sorted(slots.values(), key=min) == [{0}, {1}]


@pytest.mark.parametrize("clears_idle", [False, True])
def test_documents_in_turn_have_a_slot_each_or_share_one_if_the_server_clears_the_others(
    clears_idle: bool, server: FakeLlamaServer, caplog: pytest.LogCaptureFixture
) -> None:
    """They share it as if there were no other: each time, a long text is read in parts."""
    server.change(n_ctx=2048, clears_idle=clears_idle, silent_s=0.1)
    texts = {name: "".join(f"{name}_{number} = {number * 7919}\n" for number in range(60)) for name in ("one", "two")}
    slots: list[int] = []
    with closing(load_in_front(server.url)) as engine:
        for name in (*texts, *texts):
            server.asked.clear()
            stats = complete(engine, CompletionRequest(texts[name] + name, max_tokens=1, document=name)).stats
            slots.append(server.asked[-1]["id_slot"])
    parts = [each for each in server.asked if each["n_predict"] == 0]
    warnings = [record.getMessage() for record in caplog.records]
    if clears_idle:
        words = "clears a slot when another one is used, so all documents share one. Start it with -np 2 --cache-ram 0"
        assert (slots, bool(parts), (stats.num_cached_tokens or 0) < 10) == ([0] * 4, True, True)
        assert warnings == [f"llama.cpp's server at {server.url} {words}"]
    else:
        assert (set(slots[:2]), slots[2:], parts, warnings) == ({0, 1}, slots[:2], [], [])
        assert stats.num_cached_tokens == stats.num_context_tokens - 1


def test_a_long_text_is_read_in_parts_of_which_none_follows_once_nobody_waits(server: FakeLlamaServer) -> None:
    server.n_ctx = 2048
    text = "".join(f"name_{number} = {number * 7919}\n" for number in range(60))
    with closing(load_in_front(server.url)) as engine:
        server.asked.clear()
        cold = complete(engine, CompletionRequest(text + "name", max_tokens=1, document="long"))
        parts = [each["prompt"] for each in server.asked if each["n_predict"] == 0]
        assert parts
        assert cold.stats.num_cached_tokens in (0, 1)
        assert cold.stats.num_context_tokens > 300
        assert all(later[: len(part)] == part for part, later in itertools.pairwise(parts))
        server.asked.clear()
        complete(engine, CompletionRequest(text + "names", max_tokens=1, document="long"))
    assert all(each["n_predict"] for each in server.asked), "what a slot has is not read again"


def test_what_the_server_read_is_counted_and_a_tenant_gets_nothing_of_what_a_slot_has_read_for_another(
    server: FakeLlamaServer,
) -> None:
    server.num_slots = 1
    tenants = ("ann", "ann", "bob", "", "ann")
    with closing(load_in_front(server.url)) as engine:
        told = [complete(engine, CompletionRequest(_NOD, max_tokens=1, tenant=tenant)).stats for tenant in tenants]
    first, again, *others = (stats.num_cached_tokens for stats in told)
    assert (first, again, others) == (1, told[0].num_context_tokens - 1, [1] * 3)  # what clears a slot is one token
    assert len({stats.num_context_tokens for stats in told}) == 1


def test_a_probe_asks_the_server_and_leaves_the_text_of_a_document_cached(server: FakeLlamaServer) -> None:
    server.num_slots = 1
    key = CompletionRequest(_NOD, max_tokens=1, tenant="ann", document="x.py")
    probe = CompletionRequest("a", max_tokens=1, priority=Priority.PROBE)
    with closing(load_in_front(server.url)) as engine:
        assert complete(engine, probe).finish_reason is FinishReason.LENGTH
        complete(engine, key)
        server.asked.clear()
        sink = complete(engine, probe)
        assert (sink.text, sink.finish_reason, len(server.asked)) == ("", FinishReason.LENGTH, 1)
        stats = complete(engine, key).stats
        assert stats.num_cached_tokens == stats.num_context_tokens - 1
        server.answers = [(503, "application/json", '{"error": {"message": "no"}}')]
        with pytest.raises(OverloadedError, match="is busy"):
            complete(engine, probe)


def test_all_that_is_asked_for_a_document_goes_to_the_same_server_behind_a_gateway(
    engine: Engine, server: FakeLlamaServer
) -> None:
    sessions = []
    for tenant, document in (("ann", "x.py"), ("bob", "x.py"), ("ann", "y.py"), ("ann", "x.py")):
        server.sessions.clear()
        complete(engine, CompletionRequest(_NOD, max_tokens=2, tenant=tenant, document=document))
        [session] = set(server.sessions)
        sessions.append(session)
    assert sessions[0] == sessions[3]
    assert len(set(sessions)) == 3
    assert "x.py" not in "".join(sessions)
