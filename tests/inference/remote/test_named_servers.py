"""The engine in front of vLLM and SGLang: exact choices, and what is refused at the start."""

import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import pytest

from inference.engine.engine import Engine, complete
from inference.errors import InvalidRequestError, MidtokenError, ServerError
from inference.healing.heal_point import encode_text
from inference.healing.loaded_tokenizer import LoadedTokenizer
from inference.protocol.completion import CompletionRequest, Extent, FinishReason, Healing, Priority
from inference.remote.health import ServerHealth, detect_server
from inference.remote.http_client import HttpClient
from inference.remote.probed_server import ProbedServer
from tests.inference.remote.conftest import load_in_front
from tests.support.fake_llama_server import run_fake_server
from tests.support.fake_named_servers import FakeNamedServer, FakeSglangServer, FakeVllmServer
from tests.support.first_choices import find_first_tokens
from tests.support.servers import wait_until
from tests.support.sinks import submit

_TEXT = "def get_node(self):\n    return "
_NUM_CUTS = 60  # of each way, two of each server
_KINDS = {"vllm": (FakeVllmServer, "/v1/completions"), "sglang": (FakeSglangServer, "/generate")}


@pytest.fixture(scope="module", params=_KINDS)
def running(request: pytest.FixtureRequest, tokenizer: LoadedTokenizer) -> Iterator[FakeNamedServer]:
    kind, path = _KINDS[request.param]
    with run_fake_server(kind(tokenizer.encoder, tokenizer.vocabulary.num_rows), path) as server:
        yield server


@pytest.fixture
def server(running: FakeNamedServer) -> FakeNamedServer:
    running.reset()
    return running


@pytest.fixture
def engine(server: FakeNamedServer) -> Iterator[Engine]:
    with closing(load_in_front(server.url)) as engine:
        yield engine


@pytest.fixture
async def found(server: FakeNamedServer) -> AsyncIterator[ProbedServer]:
    client = HttpClient(server.url)
    yield cast("ProbedServer", await detect_server(client))
    await client.close()


@pytest.mark.parametrize(("max_top", "is_incremental"), [(20, False), (5, True)])
def test_every_first_choice_is_the_best_of_all_paths(
    max_top: int, is_incremental: bool, server: FakeNamedServer, tokenizer: LoadedTokenizer
) -> None:
    server.max_top, server.is_incremental = max_top, is_incremental
    text, draw, different = Path("lsp_server/items.py").read_text(), random.Random(max_top), []
    with closing(load_in_front(server.url)) as engine:
        for _ in range(_NUM_CUTS):
            at = draw.randrange(40, len(text))
            tokens = find_first_tokens(server, tokenizer, text[at - 40 : at])
            server.asked.clear()
            complete(engine, CompletionRequest(text[at - 40 : at], max_tokens=2, extent=Extent.UNLIMITED))
            ends = tokens[-1] in tokenizer.vocabulary.special_ids
            if not ends and server.find_rows(server.asked[-1]) != [tokens]:
                different.append(text[at - 20 : at])
    assert different == []


_FAULTS: list[dict[str, Any]] = [
    *({"drops": (name,)} for name in ("temperature", "repetition_penalty", "presence_penalty", "frequency_penalty")),
    {"drops": ("allowed_token_ids", "token_ids_logprob")},
    {"drops": ("logprobs", "return_logprob")},
    {"drops": ("return_tokens_as_token_ids", "top_logprobs_num")},
    {"drops": ("return_token_ids", "return_prompt_token_ids")},
    {"tells": "raw_logits"},
    {"max_model_len": None},
    {"extra_token": True},
    {"owner": "acme"},
]


@pytest.mark.parametrize(
    ("running", "faults"),
    [*((kind, faults) for kind in _KINDS for faults in _FAULTS), ("vllm", {"tells": "processed_logprobs"})],
    indirect=["running"],
    ids=str,
)
async def test_a_server_that_lacks_something_or_tells_what_is_allowed_only_is_refused_by_name(
    faults: dict[str, Any], server: FakeNamedServer, tokenizer: LoadedTokenizer
) -> None:
    health = ServerHealth(HttpClient(server.url), [(_TEXT, encode_text(tokenizer.encoder, _TEXT))])
    server.change(**faults)
    with pytest.raises(MidtokenError, match=server.url):
        await health.check()
    server.reset()
    await health.check()
    await health.http.close()


@pytest.mark.parametrize("is_incremental", [False, True])
def test_what_follows_is_what_the_server_writes(
    is_incremental: bool, server: FakeNamedServer, tokenizer: LoadedTokenizer
) -> None:
    server.is_incremental, tokens = is_incremental, find_first_tokens(server, tokenizer, "x = ")
    num_first = len(tokens)
    while len(tokens) < 20:
        tokens.append(int(server.find_log_probs(tokens).argmax()))
    with closing(load_in_front(server.url)) as engine:
        sink = submit(engine, CompletionRequest("x = ", max_tokens=8, extent=Extent.UNLIMITED)).wait()
    assert sink.stats.num_cached_tokens == getattr(server, "num_cached", None)  # which vLLM does not tell
    written, told = sink.text, [log_prob for chunk in sink.chunks for log_prob in chunk.log_probs]
    raw = [float(server.find_log_probs(tokens[:number])[tokens[number]]) for number in range(num_first, num_first + 7)]
    totals = [*accumulate(raw, initial=told[0])]  # of tokens that end in one character, the first is told
    assert len(told) > 4
    assert all(any(math.isclose(each, total, rel_tol=1e-5) for total in totals) for each in told)
    assert len(written) > 10
    assert b"".join(map(tokenizer.trie.spell, tokens)).decode(errors="replace").removeprefix("x = ").startswith(written)


@pytest.mark.parametrize("healing", [Healing.EXACT, Healing.NONE])
def test_a_limit_beyond_the_window_is_what_fits_beside_the_first_token(
    healing: Healing, engine: Engine, server: FakeNamedServer
) -> None:
    text = "a = [b]\n" * 400 + "foo("
    complete(engine, CompletionRequest(text, max_tokens=4096, healing=healing, extent=Extent.UNLIMITED))
    [row], limit = server.find_rows(server.asked[-1]), server.find_sampling(server.asked[-1])[server.limit_field]
    assert len(row) + limit <= 512
    assert limit > 100


@pytest.mark.parametrize("dropped", [("allowed_token_ids", "token_ids_logprob"), ("temperature",)], ids=str)
def test_what_is_lost_later_fails_a_request_and_gives_no_wrong_text(
    dropped: tuple[str, ...], server: FakeNamedServer
) -> None:
    server.max_top = 5
    with closing(load_in_front(server.url)) as engine:
        server.drops = dropped
        with pytest.raises(ServerError, match=server.url):
            complete(engine, CompletionRequest("def f(x):\n    ret", max_tokens=2))


async def _generate(server: ProbedServer) -> list[object]:
    return [step async for step in server.generate(CompletionRequest(""), (1, 2, 3), 2)]


_INDEX, _TOKEN, _END = r'(?<="index": )\d+', r'(?<=_ids": \[)\d+', r'(?<="finish_reason": )(null|"length")'
_LOG_PROB = r'("token_id:\d+": |\[)-[\d.e-]+(?=[,}])'
_WAYS: dict[str, Callable[[ProbedServer], Awaitable[object]]] = {
    "score": lambda server: server.score(CompletionRequest(""), [(1, 2, 3)]),
    "answer": lambda server: server.find_best_token(CompletionRequest(""), (1, 2, 3), (7, 8)),
    "generate": _generate,
}


@pytest.mark.parametrize(
    ("running", "way", "edit"),
    [
        *((kind, "score", (_INDEX, "[]")) for kind in _KINDS),
        *(("sglang", "generate", (_TOKEN, each)) for each in ("7.5", '"7"', "true")),
        *(("vllm", "generate", (r"(?<=token_id:)\d+", each)) for each in ("7.5", "true")),
        ("vllm", "generate", (_END, "[]")),
        *(
            (kind, way, (_LOG_PROB, rf"\g<1>{each}"))
            for kind in _KINDS
            for way in ("score", "answer")
            for each in ('"nan"', "true", "0.5", "800.0", "1e999", "-" + "9" * 400)
        ),
        ("sglang", "generate", (r'(?<="completion_tokens": )\d+', '"1"')),
    ],
    indirect=["running"],
    ids=str,
)
async def test_what_is_of_another_kind_than_it_should_be_is_refused_by_name(
    way: str, edit: tuple[str, str], server: FakeNamedServer, found: ProbedServer
) -> None:
    await found.measure()
    server.edit = edit
    with pytest.raises(ServerError, match=server.url):
        await _WAYS[way](found)


def test_a_tenant_has_a_salt_and_a_document_a_replica(engine: Engine, server: FakeNamedServer) -> None:
    told: list[tuple[str, str]] = []
    for tenant, document in (("a", "x.py"), ("a", "y.py"), ("b", "x.py"), ("a", "x.py"), ("", "")):
        complete(engine, CompletionRequest("x = self._no", max_tokens=2, tenant=tenant, document=document))
        told.append((server.asked[-1].get("cache_salt", ""), server.headers[-1].get("X-Session-ID", "")))
    (salt, session), (same_salt, other_session), (other_salt, third_session), again, nobody = told
    assert (again, nobody, same_salt) == ((salt, session), ("", ""), salt)
    assert len({salt, other_salt, session, other_session, third_session}) == 5
    assert all(len(each) == 32 for pair in told[:4] for each in pair)


def test_tenants_are_refused_where_their_salts_do_not_arrive(server: FakeNamedServer) -> None:
    server.drops = ("cache_salt",)
    with closing(load_in_front(server.url)) as engine:
        assert complete(engine, CompletionRequest("x = ", max_tokens=2))[0]
        with pytest.raises(InvalidRequestError, match="tenants apart"):
            complete(engine, CompletionRequest("x = ", max_tokens=2, tenant="a"))


@pytest.mark.parametrize("changes", [{"temperature": 0.5}, {"num_candidates": 2}, {"explain": True}], ids=str)
def test_what_needs_whole_distributions_is_refused(engine: Engine, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="need whole distributions, which"):
        complete(engine, CompletionRequest("x = ", **changes))


def test_a_server_that_was_started_again_with_other_settings_is_measured_again(
    engine: Engine, server: FakeNamedServer
) -> None:
    server.max_top = 5
    with suppress(ServerError):  # vLLM refuses to tell more
        complete(engine, CompletionRequest("x = ", max_tokens=2))
    assert complete(engine, CompletionRequest("x = ", max_tokens=2))[0]
    server.tells = "raw_logits"
    for _ in range(2):
        with pytest.raises(MidtokenError, match="logprobs-mode"):
            complete(engine, CompletionRequest("x = ", max_tokens=2))


async def test_after_some_minutes_it_is_measured_as_one_that_was_started_again(found: ProbedServer) -> None:
    before = await found.identify()
    assert await found.identify() == before
    found.measured_s = 1e-6
    assert await found.identify() != before


async def test_the_best_of_all_tokens_is_asked_for_in_parts(server: FakeNamedServer, found: ProbedServer) -> None:
    await found.measure()
    token_id, log_prob = await found.find_best_token(CompletionRequest(""), (1, 2, 3), tuple(range(server.num_tokens)))
    log_probs = server.find_log_probs([1, 2, 3])
    assert token_id == log_probs.argmax()
    assert log_prob == pytest.approx(log_probs.max())
    assert not server.is_dead


async def test_what_is_cancelled_ends_its_work_and_what_is_read_ahead_writes_nothing(
    engine: Engine, server: FakeNamedServer
) -> None:
    server.delay_s = 0.02
    sink = submit(engine, CompletionRequest("x = ", max_tokens=200))
    wait_until(lambda: bool(sink.chunks))
    sink.cancelled.set()
    assert sink.wait().finish_reason is FinishReason.CANCELLED
    wait_until(lambda: server.num_closed > 0)
    assert complete(engine, CompletionRequest("x = ", priority=Priority.PREFETCH))[0] == ""
    echoes = ("return_token_ids", "return_prompt_token_ids")
    assert not any(server.asked[-1].get(name) for name in echoes), "an event with a long prompt would be too long"
