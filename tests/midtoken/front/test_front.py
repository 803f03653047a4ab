"""The port for editors, in this process, before a model that the test feeds."""

import asyncio
import json
import ssl
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
import trustme
from aiohttp import ClientSession

from inference.errors import InvalidRequestError, OverloadedError, ServerError, ServerUnreachableError
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Extent,
    FinishReason,
    Priority,
)
from midtoken.front.app import open_front
from midtoken.front.asked import split_prompt
from midtoken.front.door import Door
from midtoken.server_arguments import UsageError
from tests.support.lsp_fakes import FedBackend, FedStream

_STATS = CompletionStats(
    num_tokens=7, num_context_tokens=20, num_read_tokens=5, queue_ms=2.0, first_chunk_ms=12.0, total_ms=37.0
)


class _Model(FedBackend):
    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None

    async def read_heartbeat_ms(self) -> float:
        if self.failure is not None:
            raise self.failure
        return 0.0

    async def wait_for(self, number: int = 0) -> FedStream:
        """Returns the stream of the request with this number, once it has come."""
        while len(self.streams) <= number:
            await asyncio.sleep(0)
        return self.streams[number]


class _Front:
    """The front, and a client of it."""

    def __init__(self, url: str, session: ClientSession, model: _Model) -> None:
        self.url, self.session, self.model = url, session, model

    async def post(self, path: str, body: object, headers: Mapping[str, str] = {}) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        async with self.session.post(f"{self.url}{path}", data=data, headers=sent) as response:
            return response.status, await response.text()

    async def ask(self, path: str, body: object, *chunks: CompletionChunk) -> Any:
        """Returns the answer of a request that the model answers with these chunks."""
        asking = asyncio.ensure_future(self.post(path, body))
        stream = await self.model.wait_for()
        for chunk in chunks or (_end("e"),):
            stream.send(chunk)
        status, text = await asking
        assert status == 200, text
        return json.loads(text)

    async def find_request(self, path: str, body: object) -> CompletionRequest:
        """Returns what the model is asked."""
        await self.ask(path, body)
        return self.model.streams[0].request


def _end(text: str, reason: FinishReason = FinishReason.END, candidate: int = 0) -> CompletionChunk:
    return CompletionChunk(text, candidate, finish_reason=reason, stats=_STATS)


@asynccontextmanager
async def _run(environment: Mapping[str, str] = {}, is_remote: bool = False, **options: Any) -> AsyncIterator[_Front]:
    named = Namespace(openai="0", openai_key=None, openai_tls=None)
    model = _Model()
    door = Door.open(Namespace(**{**vars(named), **options}), environment)
    async with open_front(door, model, "default", is_remote), ClientSession() as session:
        yield _Front(door.url, session, model)


@pytest.fixture
async def front() -> AsyncIterator[_Front]:
    async with _run() as front:
        yield front


async def test_a_completion_has_text_reason_and_usage(front: _Front) -> None:
    body = {
        "prompt": "return Nod",
        "suffix": "\n",
        "max_tokens": 8,
        "user": "ann",
        "seed": 3,
        "unknown": 1,
        "stop": None,
    }
    answer = await front.ask("/v1/completions", body)
    assert answer["choices"] == [{"index": 0, "text": "e", "logprobs": None, "finish_reason": "stop"}]
    assert answer["usage"] == {
        "prompt_tokens": 20,
        "completion_tokens": 7,
        "total_tokens": 27,
        "prompt_tokens_details": {"cached_tokens": 15},
    }
    assert (answer["object"], answer["model"], answer["id"][:5]) == ("text_completion", "default", "cmpl-")
    expected = CompletionRequest("return Nod", "\n", max_tokens=8, extent=Extent.UNLIMITED, tenant="ann", seed=3)
    assert front.model.streams[0].request == expected


async def test_an_infill_is_asked_as_llama_server_understands_it(front: _Front) -> None:
    others = [{"text": "a = 1\n", "filename": "a.py", "time": 3}, {"text": "b = 2\n"}]
    body = {"input_extra": others, "input_prefix": "x\r\n", "prompt": "  ret", "input_suffix": "\n", "n_indent": 2}
    request = await front.find_request("/infill", body | {"n_predict": 9, "n_cmpl": 1, "stop": ["x"], "top_k": 40})
    before = "\n\n--- snippet ---\n\na = 1\n\n\n--- snippet ---\n\nb = 2\nx\n  ret"
    assert request == CompletionRequest(before, "\n", max_tokens=9, stop=("x",), extent=Extent.BLOCK)


async def test_an_infill_answers_with_what_llama_vim_and_llama_vscode_show(front: _Front) -> None:
    answer = await front.ask("/infill", {"prompt": "Nod"}, CompletionChunk("e\n"), _end(""))
    assert (answer["content"], answer["stop"], answer["stop_type"]) == ("e\n", True, "eos")
    assert (answer["tokens_cached"], answer["truncated"], answer["has_new_line"]) == (27, False, True)
    assert answer["generation_settings"]["n_predict"] == 128
    timings = answer["timings"]
    assert (timings["prompt_n"], timings["prompt_ms"], timings["cache_n"]) == (5, 10.0, 15)
    assert (timings["predicted_n"], timings["predicted_ms"], timings["predicted_per_second"]) == (7, 35.0, 200.0)


async def test_only_the_fields_that_are_wanted_are_answered_without_blanks_as_llama_vim_needs_it(front: _Front) -> None:
    asking = asyncio.ensure_future(front.post("/infill", {"response_fields": ["content", "timings/prompt_n", "none"]}))
    (await front.model.wait_for()).send(_end("e"))
    assert await asking == (200, '{"content":"e","timings/prompt_n":5}')


async def test_several_infills_are_a_list(front: _Front) -> None:
    answers = await front.ask(
        "/infill", {"n_cmpl": 2}, CompletionChunk("a", 0, finish_reason=FinishReason.STOP), _end("b", candidate=1)
    )
    assert [(each["index"], each["content"], each["stop_type"]) for each in answers] == [
        (0, "a", "word"),
        (1, "b", "eos"),
    ]


async def test_an_engine_that_generates_one_text_is_asked_for_one_infill_but_not_for_fewer_completions(
    front: _Front,
) -> None:
    for path, names in (("/infill", ("n_cmpl",)), ("/v1/completions", ("n", "prompt"))):
        asking = asyncio.ensure_future(front.post(path, dict(zip(names, (3, "a"), strict=False))))
        (await front.model.wait_for(0 if path == "/infill" else 2)).fail(InvalidRequestError("several texts"))
        if path == "/infill":
            (await front.model.wait_for(1)).send(_end("e"))
            assert json.loads((await asking)[1])[0]["content"] == "e"
    assert "several texts" in (await asking)[1]
    assert [each.request.num_candidates for each in front.model.streams] == [3, 1, 3]


async def test_an_infill_that_the_engine_refuses_for_another_reason_is_refused(front: _Front) -> None:
    asking = asyncio.ensure_future(front.post("/infill", {"n_cmpl": 3}))
    for number in range(2):
        (await front.model.wait_for(number)).fail(InvalidRequestError("too long"))
    assert ((await asking)[0], len(front.model.streams)) == (400, 2)


async def test_an_infill_for_no_tokens_has_the_text_read(front: _Front) -> None:
    asking = asyncio.ensure_future(
        front.post("/infill", {"n_predict": 0, "input_extra": [{"text": "a"}], "response_fields": [""]})
    )
    while not front.model.prefetches:
        await asyncio.sleep(0)
    (stream,) = front.model.prefetches
    stream.send(_end("", FinishReason.READ))
    assert await asking == (200, "{}")
    assert stream.request.priority is Priority.PREFETCH


@pytest.mark.parametrize("path", ["/v1/completions", "/infill"])
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"logprobs": 1}, "logprobs is not offered here, so leave it out"),
        ({"presence_penalty": 0.5}, "presence_penalty is not offered here"),
        ({"lora": [{"id": 0}]}, "lora is not offered here"),
        ({"temperature": 0.5, "top_k": 40}, "top_k is not offered here"),
        ({"temperature": "hot"}, "temperature must be a number, not 'hot'"),
        ({"temperature": 11}, "temperature must be between 0.0 and 10.0, not 11.0"),
        ({"stream": 1}, "stream must be true or false, not '1'"),
        ({"stop": ["a", 1]}, "stop must be a text or a list of texts, not \"['a', 1]\""),
        ({"n": True}, "n must be a whole number, not 'True'"),
        ({"user": "x" * 2000}, "tenant has 2000 bytes"),
        ([], "an object is needed, not '[]'"),
        (b"{", "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON"),
        ({"prompt": [1, 2]}, "prompt must be a text"),
        ({"prompt": "password = 'hunter2correct"}, "the cursor is in a secret, which is not sent"),
    ],
)
async def test_what_is_not_offered_is_refused_by_name(front: _Front, path: str, body: object, reason: str) -> None:
    status, text = await front.post(path, {"prompt": "a"} | body if isinstance(body, dict) else body)
    error = json.loads(text)["error"]
    assert (status, error["code"], error["type"]) == (400, 400, "invalid_request_error")
    assert reason in error["message"]
    assert front.model.streams == []


async def test_two_prompts_are_refused(front: _Front) -> None:
    status, text = await front.post("/v1/completions", {"prompt": ["a", "b"]})
    assert (status, "prompt must be one text, not 2" in text) == (400, True)


async def test_where_tokens_are_sampled_fields_that_change_nothing_are_taken(front: _Front) -> None:
    body = {
        "prompt": ["a"],
        "temperature": 0.5,
        "top_p": 1,
        "top_k": -1,
        "presence_penalty": 0,
        "n": 2,
        "max_tokens": 4096,
    }
    request = await front.find_request("/v1/completions", body)
    assert (request.temperature, request.top_p, request.num_candidates, request.max_tokens) == (0.5, 1.0, 2, 1024)


async def test_secrets_are_replaced_in_what_is_sent(front: _Front) -> None:
    secret = "password = 'hunter2correct'\n"
    request = await front.find_request(
        "/infill", {"input_extra": [{"text": secret}], "prompt": "x", "input_suffix": secret}
    )
    assert "hunter2" not in request.prefix + request.suffix
    assert request.suffix == "password = 'REDACTED'\n"


async def test_where_text_may_go_to_another_machine_all_that_looks_random_is_replaced() -> None:
    looks_random = "x = 'q7Zp2Lm9Xc4Vb8Nk'\n"
    for is_remote, sent in ((False, looks_random), (True, "x = 'REDACTED'\n")):
        async with _run(is_remote=is_remote) as front:
            assert (await front.find_request("/infill", {"input_suffix": looks_random})).suffix == sent


_QWEN = "<|fim_prefix|>{before}<|fim_suffix|>{after}<|fim_middle|>"


@pytest.mark.parametrize(
    ("prompt", "before", "after"),
    [
        (_QWEN.format(before="a\nNod", after="\nb"), "a\nNod", "\nb"),
        ("<|fim_prefix|><|fim_suffix|>\nb<|fim_middle|>a\nNod", "a\nNod", "\nb"),
        ("<[fim-suffix]>\nb<[fim-prefix]>a\n<[fim-middle]>Nod", "a\nNod", "\nb"),
        ("[SUFFIX]\nb[PREFIX]a\nNod", "a\nNod", "\nb"),
        ("<PRE> a\nNod <SUF>\nb <MID>", "a\nNod", "\nb"),
        (" <PRE> a\nNod <SUF>\nb <MID>", "a\nNod", "\nb"),
        ("<|repo_name|>r\n<|file_sep|>c.py\nc\n" + _QWEN.format(before="a", after=""), "{0}r\n{0}c.py\nc\na", ""),
        ("if '<|fim_prefix|>' in Nod", "if '<|fim_prefix|>' in Nod", ""),
    ],
)
def test_a_prompt_with_markers_is_taken_apart(prompt: str, before: str, after: str) -> None:
    assert split_prompt(prompt) == (before.format("\n\n--- snippet ---\n\n"), after)


async def test_a_marker_in_the_text_of_a_prompt_with_markers_is_refused_and_with_a_suffix_it_is_text(
    front: _Front,
) -> None:
    prompt = _QWEN.format(before="a = '<|fim_suffix|>'", after="")
    with pytest.raises(InvalidRequestError, match="send prompt and suffix apart"):
        split_prompt(prompt)
    request = await front.find_request("/v1/completions", {"prompt": prompt, "suffix": ""})
    assert (request.prefix, request.suffix) == (prompt, "")


@pytest.mark.parametrize(
    ("body", "headers", "is_named"),
    [
        ({"id_slot": 0}, {}, True),
        ({}, {"X-Session-ID": "a"}, True),
        ({"id_slot": -1}, {}, False),
        ({}, {}, False),
    ],
)
async def test_the_slot_or_the_session_names_what_newer_requests_supersede(
    front: _Front, body: dict[str, Any], headers: Mapping[str, str], is_named: bool
) -> None:
    agents = ("vim", "vim", "code")
    asking = [asyncio.ensure_future(front.post("/infill", body, {**headers, "User-Agent": agent})) for agent in agents]
    requests = [(await front.model.wait_for(number)).request for number in range(3)]
    for each in asking:
        each.cancel()
    assert len({request.document for request in requests}) == (2 if is_named else 1)
    assert all(bool(request.document) == is_named for request in requests)


async def test_a_superseded_request_is_an_error_after_which_no_client_asks_again(front: _Front) -> None:
    asking = asyncio.ensure_future(front.post("/infill", {"id_slot": 0}))
    (await front.model.wait_for()).send(_end("", FinishReason.SUPERSEDED))
    status, text = await asking
    assert (status, json.loads(text)["error"]["type"]) == (499, "superseded_error")


@pytest.mark.parametrize("streams", [False, True])
async def test_closing_the_connection_ends_the_request(front: _Front, streams: bool) -> None:
    asking = asyncio.ensure_future(front.post("/infill", {"stream": streams}))
    stream = await front.model.wait_for()
    stream.feed("e")
    asking.cancel()
    while not stream.is_cancelled:
        await asyncio.sleep(0)


async def test_below_zero_an_infill_has_no_limit(front: _Front) -> None:
    body = {"t_max_predict_ms": -1, "n_predict": -1}
    answer = await front.ask("/infill", body, CompletionChunk("a\n"), _end("b"))
    assert (answer["content"], front.model.streams[0].request.max_tokens) == ("a\nb", 1024)


async def test_after_its_time_an_infill_ends_if_it_has_a_line(front: _Front) -> None:
    asking = asyncio.ensure_future(front.post("/infill", {"t_max_predict_ms": 1}))
    stream = await front.model.wait_for()
    for text in ("a", "b"):
        stream.feed(text)
        await asyncio.sleep(0.01)
    assert not asking.done()
    stream.feed("\nc")
    answer = json.loads((await asking)[1])
    assert (answer["content"], answer["stop_type"]) == ("ab\nc", "limit")


async def test_events_of_an_infill(front: _Front) -> None:
    asking = asyncio.ensure_future(front.post("/infill", {"stream": True}))
    stream = await front.model.wait_for()
    stream.feed("a")
    stream.send(_end("b"))
    events = [json.loads(each.removeprefix("data: ")) for each in (await asking)[1].split("\n\n")[:-1]]
    assert [(each["content"], each["stop"]) for each in events] == [("a", False), ("b", False), ("", True)]


async def test_a_defect_after_the_first_event_is_an_event_without_text(front: _Front) -> None:
    asking = asyncio.ensure_future(front.post("/infill", {"stream": True}))
    stream = await front.model.wait_for()
    stream.feed("a")
    stream.fail(ZeroDivisionError("text of a person"))
    status, text = await asking
    assert (status, json.loads(text.split("\n\n")[1].removeprefix("data: "))["error"]["code"]) == (200, 500)
    assert "person" not in text


_FAILURES = [
    (ServerUnreachableError("gone"), 503, "unavailable_error", "gone"),
    (OverloadedError("full"), 503, "unavailable_error", "full"),
    (ServerError("bad"), 500, "server_error", "bad"),
    (ZeroDivisionError("text of a person"), 500, "server_error", "unexpected ZeroDivisionError"),
]


@pytest.mark.parametrize(("failure", "status", "kind", "reason"), _FAILURES)
async def test_a_failure_has_a_status(front: _Front, failure: Exception, status: int, kind: str, reason: str) -> None:
    asking = asyncio.ensure_future(front.post("/infill", {"stream": True}))
    (await front.model.wait_for()).fail(failure)
    answered, text = await asking
    error = json.loads(text)["error"]
    assert (answered, error["type"], reason in error["message"], "person" in text) == (status, kind, True, False)


async def test_health_and_models(front: _Front) -> None:
    async with front.session.get(f"{front.url}/v1/models") as response:
        assert [each["id"] for each in (await response.json())["data"]] == ["default"]
    for failure, expected in ((None, (200, {"status": "ok"})), (ServerUnreachableError("gone"), (503, None))):
        front.model.failure = failure
        async with front.session.get(f"{front.url}/health") as response:
            assert (response.status, expected[1] or await response.json()) == (expected[0], await response.json())
    assert (await front.post("/v1/embeddings", {}))[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Host": "evil.example"}, 403), ({"Origin": "http://evil.example"}, 403), ({"Content-Type": "text/plain"}, 415)],
)
async def test_a_web_page_reaches_no_model(front: _Front, headers: Mapping[str, str], status: int) -> None:
    assert (await front.post("/infill", {}, headers))[0] == status
    assert front.model.streams == []


async def test_with_a_key_nobody_enters_without_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text("s3cret\n")
    async with _run(openai_key=path) as front:
        for given in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Bearer é"}):
            assert (await front.post("/infill", {}, given))[0] == 401
        asking = asyncio.ensure_future(front.post("/infill", {}, {"Authorization": "Bearer s3cret"}))
        (await front.model.wait_for()).send(_end("e"))
        assert (await asking)[0] == 200


@pytest.mark.parametrize(("mode", "text"), [(0o644, "s3cret"), (0o600, "\n"), (0o600, None)])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int, text: str | None) -> None:
    path = tmp_path / "key"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(UsageError, match="--openai-key"):
        Door.open(Namespace(openai="0", openai_key=path, openai_tls=None), {})


@pytest.mark.parametrize("environment", [{}, {"MIDTOKEN_OPENAI_KEY": "s3cret"}])
def test_another_address_needs_a_key_and_tls(environment: Mapping[str, str]) -> None:
    with pytest.raises(
        UsageError, match=r"others than programs of this machine may reach 0\.0\.0\.0, so --openai needs a key there"
    ):
        Door.open(Namespace(openai="0.0.0.0:0", openai_key=None, openai_tls=None), environment)


async def test_another_address_with_tls_and_a_key_from_the_environment(tmp_path: Path) -> None:
    authority = trustme.CA()
    path = tmp_path / "server.pem"
    authority.issue_cert("127.0.0.2").private_key_and_cert_chain_pem.write_to_path(path)
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    async with _run({"MIDTOKEN_OPENAI_KEY": "s3cret"}, openai="127.0.0.2:0", openai_tls=path) as front:
        headers = {"Authorization": "Bearer s3cret"}
        async with front.session.get(f"{front.url}/v1/models", headers=headers, ssl=trusted) as response:
            assert response.status == 200
    path.write_text("none")
    with pytest.raises(UsageError, match="needs a private key"):
        Door.open(Namespace(openai="0", openai_key=None, openai_tls=path), {})


@pytest.fixture
async def client(front: _Front) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none") as client:
        yield client


async def test_the_openai_package_reads_an_answer(front: _Front, client: openai.AsyncOpenAI) -> None:
    asking = asyncio.ensure_future(
        client.completions.create(model="any", prompt="return Nod", suffix="\n", n=2, stop=["x"], temperature=0)
    )
    stream = await front.model.wait_for()
    stream.send(CompletionChunk("e", finish_reason=FinishReason.LENGTH))
    stream.send(_end("es", FinishReason.STOP, candidate=1))
    answer = await asking
    assert [(each.text, each.finish_reason) for each in answer.choices] == [("e", "length"), ("es", "stop")]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 15
    assert (stream.request.num_candidates, stream.request.suffix, stream.request.stop) == (2, "\n", ("x",))


@pytest.mark.parametrize("options", [{"stream_options": {"include_usage": True}}, {}])
async def test_the_openai_package_reads_a_stream(
    front: _Front, client: openai.AsyncOpenAI, options: dict[str, Any]
) -> None:
    asking = asyncio.ensure_future(client.completions.create(model="any", prompt="a", stream=True, **options))
    stream = await front.model.wait_for()
    stream.feed("b")
    events = await asking
    stream.send(_end("c", FinishReason.LENGTH))
    received = [event async for event in events]
    assert [[(each.text, each.finish_reason) for each in event.choices] for event in received] == [
        [("b", None)],
        [("c", "length")],
        *([[]] if options else []),
    ]
    assert [event.usage.total_tokens for event in received if event.usage] == ([27] if options else [])


async def test_the_openai_package_raises_what_went_wrong(front: _Front, client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="logprobs is not offered here"):
        await client.completions.create(model="any", prompt="a", logprobs=1)
    asking = asyncio.ensure_future(client.completions.create(model="any", prompt="a", stream=True))
    stream = await front.model.wait_for()
    stream.feed("b")
    events = await asking
    stream.fail(ServerError("the model has ended"))
    with pytest.raises(openai.APIError, match="the model has ended"):
        [event async for event in events]
    asking = asyncio.ensure_future(client.completions.create(model="any", prompt="a"))
    (await front.model.wait_for(1)).send(_end("", FinishReason.SUPERSEDED))
    with pytest.raises(openai.APIStatusError, match="a newer request"):
        await asking
    assert len(front.model.streams) == 2


async def test_closing_a_stream_of_the_openai_package_ends_the_request(
    front: _Front, client: openai.AsyncOpenAI
) -> None:
    asking = asyncio.ensure_future(client.completions.create(model="any", prompt="a", stream=True))
    stream = await front.model.wait_for()
    stream.feed("b")
    events = await asking
    await events.close()
    while not stream.is_cancelled:
        await asyncio.sleep(0)
