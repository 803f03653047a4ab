"""The port for editors, in this process, before a model that the test feeds."""

import asyncio
import json
import ssl
from argparse import Namespace
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import openai
import pytest
import trustme
from aiohttp import ClientError, ClientSession, ClientTimeout

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

_COMPLETION, _INFILL = "/v1/completions", "/infill"
_PATIENCE = ClientTimeout(20)
_Answer = TypeVar("_Answer")
_STATS = CompletionStats(
    num_tokens=7, num_context_tokens=20, num_read_tokens=5, queue_ms=2.0, first_chunk_ms=12.0, total_ms=37.0
)


class _Model(FedBackend):
    failure: Exception | None = None

    async def read_heartbeat_ms(self) -> float:
        if self.failure is not None:
            raise self.failure
        return 0.0


class _Front:
    """The front, and a client of it."""

    def __init__(self, url: str, session: ClientSession, model: _Model) -> None:
        self.url, self.session, self.model = url, session, model

    async def post(self, path: str, body: object, headers: Mapping[str, str] = {}) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        async with self.session.post(f"{self.url}{path}", data=data, headers=sent) as response:
            return response.status, await response.text()

    async def begin(self, request: Coroutine[Any, Any, _Answer]) -> tuple[asyncio.Task[_Answer], FedStream]:
        """Starts a request, and returns it and its stream once the model is asked."""
        number, asking = len(self.model.streams), asyncio.ensure_future(request)
        return asking, await self.find_stream(number)

    async def find_stream(self, number: int) -> FedStream:
        async with asyncio.timeout(_PATIENCE.total):
            while len(self.model.streams) <= number:
                await asyncio.sleep(0)
        return self.model.streams[number]

    async def ask(self, path: str, body: object, *chunks: CompletionChunk) -> tuple[CompletionRequest, Any]:
        """Returns what the model is asked, and the answer of a request that it answers with these chunks."""
        asking, stream = await self.begin(self.post(path, body))
        for chunk in chunks or (_end("e"),):
            stream.send(chunk)
        status, text = await asking
        assert status == 200, text
        return stream.request, json.loads(text)


def _end(text: str, reason: FinishReason = FinishReason.END, candidate: int = 0) -> CompletionChunk:
    return CompletionChunk(text, candidate, finish_reason=reason, stats=_STATS)


def _open_door(environment: Mapping[str, str] = {}, **options: Any) -> Door:
    return Door.open(Namespace(**{"openai": "0", "openai_key": None, "openai_tls": None, **options}), environment)


@asynccontextmanager
async def _run(door: Door | None = None, is_remote: bool = False) -> AsyncIterator[_Front]:
    door, model = door or _open_door(), _Model()
    model.prefetches = model.streams
    async with open_front(door, model, "default", is_remote), ClientSession(timeout=_PATIENCE) as session:
        yield _Front(door.url, session, model)


@pytest.fixture
async def front() -> AsyncIterator[_Front]:
    async with _run() as front:
        yield front


_OTHERS = [{"text": "a = 1\n", "filename": "a.py", "time": 3}, {"text": "b = 2\n"}]
_TIMINGS = {
    **{"prompt_n": 5, "prompt_ms": 10.0, "prompt_per_token_ms": 2.0, "prompt_per_second": 500.0, "cache_n": 15},
    **{"predicted_n": 7, "predicted_ms": 35.0, "predicted_per_token_ms": 5.0, "predicted_per_second": 200.0},
}


@pytest.mark.parametrize(
    ("path", "body", "chunks", "request_fields", "shown"),
    [
        (
            _INFILL,
            {"input_extra": _OTHERS, "input_prefix": "x\r\n", "prompt": "  ret", "input_suffix": "\n", "n_indent": 2}
            | {"n_predict": 9, "n_cmpl": 1, "stop": ["x"], "top_k": 40},
            [_end("e")],
            {"prefix": "\n\n--- snippet ---\n\na = 1\n\n\n--- snippet ---\n\nb = 2\nx\n  ret", "suffix": "\n"}
            | {"max_tokens": 9, "stop": ("x",), "extent": Extent.BLOCK},
            {"content": "e"},
        ),
        (
            _INFILL,
            {"prompt": "Nod"},
            [CompletionChunk("e\n"), _end("")],
            {"prefix": "Nod", "max_tokens": 128},
            {"content": "e\n", "stop": True, "stop_type": "eos", "tokens_cached": 27, "truncated": False}
            | {"has_new_line": True, "timings": _TIMINGS, "generation_settings": {"n_predict": 128, "temperature": 0}},
        ),
        (
            _INFILL,
            {"t_max_predict_ms": -1, "n_predict": -1},
            [CompletionChunk("a\n"), _end("b")],
            {"prefix": "", "max_tokens": 1024},
            {"content": "a\nb"},
        ),
        (
            _INFILL,
            {"n_predict": 0, "input_extra": _OTHERS[1:], "response_fields": [""]},
            [_end("", FinishReason.READ)],
            {"prefix": "\n\n--- snippet ---\n\nb = 2\n", "max_tokens": 1, "priority": Priority.PREFETCH},
            {},
        ),
        (
            _COMPLETION,
            {"prompt": ["a"], "temperature": 0.5, "top_p": 1, "top_k": -1, "presence_penalty": 0, "n": 2}
            | {"max_tokens": 4096, "echo": None, "unknown": 1},
            [_end("e"), _end("f", candidate=1)],
            {"prefix": "a", "temperature": 0.5, "top_p": 1.0, "num_candidates": 2, "max_tokens": 1024},
            {"object": "text_completion"},
        ),
    ],
    ids=[
        "an infill as llama-server understands it",
        "an infill with what llama.vim and llama.vscode show",
        "an infill without limits",
        "an infill for no tokens, whose text is read",
        "a completion with fields that change nothing where tokens are sampled",
    ],
)
async def test_what_is_asked_reaches_the_model_and_its_answer_the_editor(
    front: _Front,
    path: str,
    body: object,
    chunks: list[CompletionChunk],
    request_fields: dict[str, Any],
    shown: dict[str, object],
) -> None:
    request, answer = await front.ask(path, body, *chunks)
    assert request == CompletionRequest(**{"extent": Extent.UNLIMITED, **request_fields})
    assert answer | shown == answer


async def test_only_the_fields_that_are_wanted_are_answered_without_blanks_as_llama_vim_needs_it(front: _Front) -> None:
    asking, stream = await front.begin(
        front.post(_INFILL, {"response_fields": ["content", "timings/prompt_n", "none"]})
    )
    stream.send(_end("e"))
    assert await asking == (200, '{"content":"e","timings/prompt_n":5}')


async def test_several_infills_are_a_list(front: _Front) -> None:
    chunks = CompletionChunk("a", 0, finish_reason=FinishReason.STOP), _end("b", candidate=1)
    _, answers = await front.ask(_INFILL, {"n_cmpl": 2}, *chunks)
    shown = [(each["index"], each["content"], each["stop_type"]) for each in answers]
    assert shown == [(0, "a", "word"), (1, "b", "eos")]


async def test_an_engine_that_generates_one_text_is_asked_for_one_infill(front: _Front) -> None:
    asking, several = await front.begin(front.post(_INFILL, {"n_cmpl": 3}))
    several.fail(InvalidRequestError("several texts"))
    (await front.find_stream(1)).send(_end("e"))
    assert json.loads((await asking)[1])[0]["content"] == "e"
    assert [each.request.num_candidates for each in front.model.streams] == [3, 1]


@pytest.mark.parametrize(("path", "name", "num_asked"), [(_INFILL, "n_cmpl", 2), (_COMPLETION, "n", 1)])
async def test_what_the_engine_refuses_also_for_one_text_or_of_several_completions_is_refused(
    front: _Front, path: str, name: str, num_asked: int
) -> None:
    asking, _ = await front.begin(front.post(path, {"prompt": "a", name: 3}))
    for number in range(num_asked):
        (await front.find_stream(number)).fail(InvalidRequestError("too long"))
    assert ((await asking)[0], len(front.model.streams)) == (400, num_asked)


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (_COMPLETION, {"logprobs": 1}, "logprobs is not offered here, so leave it out"),
        (_INFILL, {"presence_penalty": 0.5}, "presence_penalty is not offered here"),
        (_INFILL, {"lora": [{"id": 0}]}, "lora is not offered here"),
        (_COMPLETION, {"temperature": 0.5, "top_k": 40}, "top_k is not offered here"),
        (_COMPLETION, {"temperature": "hot"}, "temperature must be a number, not 'hot'"),
        (_INFILL, {"temperature": 11}, "temperature must be between 0.0 and 10.0, not 11.0"),
        (_COMPLETION, {"stream": 1}, "stream must be true or false, not '1'"),
        (_COMPLETION, {"stop": ["a", 1]}, "stop must be a text or a list of texts, not \"['a', 1]\""),
        (_INFILL, {"n": True}, "n must be a whole number, not 'True'"),
        (_COMPLETION, {"user": "x" * 2000}, "tenant has 2000 bytes"),
        (_INFILL, [], "an object is needed, not '[]'"),
        (_COMPLETION, b"{", "the body is no JSON"),
        (_INFILL, b"[" * 100_000, "the body is no JSON"),
        (_COMPLETION, {"prompt": [1, 2]}, "prompt must be a text"),
        (_INFILL, {"prompt": [1, 2]}, "prompt must be a text"),
        (_COMPLETION, {"prompt": ["a", "b"]}, "prompt must be one text, not 2"),
        (_COMPLETION, {"prompt": "password = 'hunter2correct"}, "the cursor is in a secret, which is not sent"),
        (_INFILL, {"prompt": "password = 'hunter2correct"}, "the cursor is in a secret, which is not sent"),
    ],
)
async def test_what_is_not_offered_is_refused_by_name(front: _Front, path: str, body: object, reason: str) -> None:
    status, text = await front.post(path, {"prompt": "a"} | body if isinstance(body, dict) else body)
    error = json.loads(text)["error"]
    assert (status, error["code"], error["type"]) == (400, 400, "invalid_request_error")
    assert reason in error["message"]
    assert front.model.streams == []


_SECRET, _RANDOM = "password = 'hunter2correct'\n", "x = 'q7Zp2Lm9Xc4Vb8Nk'\n"


@pytest.mark.parametrize(
    ("is_remote", "text", "sent"),
    [
        (False, _SECRET, "password = 'REDACTED'\n"),
        (False, _RANDOM, _RANDOM),
        (True, _RANDOM, "x = 'REDACTED'\n"),
    ],
    ids=["secret", "random", "random and remote"],
)
async def test_secrets_are_replaced_and_where_text_leaves_the_machine_all_that_looks_random(
    is_remote: bool, text: str, sent: str
) -> None:
    async with _run(is_remote=is_remote) as front:
        body = {"input_extra": [{"text": text}], "prompt": "x", "input_suffix": text}
        request, _ = await front.ask(_INFILL, body)
    assert (sent in request.prefix, request.suffix) == (True, sent)


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
    request, _ = await front.ask(_COMPLETION, {"prompt": prompt, "suffix": ""})
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
    documents = []
    for agent in ("vim", "vim", "code"):
        asking, stream = await front.begin(front.post(_INFILL, body, {**headers, "User-Agent": agent}))
        documents.append(stream.request.document)
        asking.cancel()
    assert [bool(each) for each in documents] == [is_named] * 3
    assert len(set(documents)) == (2 if is_named else 1)


@pytest.mark.parametrize("streams", [False, True])
async def test_closing_the_connection_ends_the_request(front: _Front, streams: bool) -> None:
    asking, stream = await front.begin(front.post(_INFILL, {"stream": streams}))
    stream.feed("e")
    asking.cancel()
    while not stream.is_cancelled:
        await asyncio.sleep(0)


async def test_after_its_time_an_infill_ends_if_it_has_a_line(front: _Front) -> None:
    asking, stream = await front.begin(front.post(_INFILL, {"t_max_predict_ms": 1}))
    for text in ("a", "b"):
        stream.feed(text)
        await asyncio.sleep(0.01)
    assert not asking.done()
    stream.feed("\nc")
    answer = json.loads((await asking)[1])
    assert (answer["content"], answer["stop_type"]) == ("ab\nc", "limit")


async def test_a_stream_of_an_infill_ends_with_an_event_also_after_a_defect_whose_text_is_not_told(
    front: _Front,
) -> None:
    events = []
    for end in (_end("b"), ZeroDivisionError("text of a person")):
        asking, stream = await front.begin(front.post(_INFILL, {"stream": True}))
        stream.feed("a")
        stream.send(end)
        status, text = await asking
        assert (status, "person" in text) == (200, False)
        events.append([json.loads(each.removeprefix("data: ")) for each in text.split("\n\n")[:-1]])
    assert [(each["content"], each["stop"]) for each in events[0]] == [("a", False), ("b", False), ("", True)]
    assert (events[1][0], events[1][1]["error"]["code"]) == (events[0][0], 500)


@pytest.mark.parametrize(
    ("end", "status", "kind", "reason"),
    [
        (ServerUnreachableError("gone"), 503, "unavailable_error", "gone"),
        (OverloadedError("full"), 503, "unavailable_error", "full"),
        (ServerError("bad"), 500, "server_error", "bad"),
        (ZeroDivisionError("text of a person"), 500, "server_error", "unexpected ZeroDivisionError"),
        (_end("", FinishReason.SUPERSEDED), 499, "superseded_error", "a newer request"),
    ],
    ids=["unreachable", "overloaded", "failed", "defect", "superseded"],
)
async def test_a_failure_has_a_status(
    front: _Front, end: CompletionChunk | Exception, status: int, kind: str, reason: str
) -> None:
    asking, stream = await front.begin(front.post(_INFILL, {"stream": True, "id_slot": 0}))
    stream.send(end)
    answered, text = await asking
    error = json.loads(text)["error"]
    assert (answered, error["type"], reason in error["message"], "person" in text) == (status, kind, True, False)


async def test_health_and_models(front: _Front) -> None:
    shown = []
    for path, failure in (("/v1/models", None), ("/health", None), ("/health", ServerUnreachableError("gone"))):
        front.model.failure = failure
        async with front.session.get(f"{front.url}{path}") as response:
            shown.append((response.status, await response.json()))
    assert [each["id"] for each in shown[0][1]["data"]] == ["default"]
    assert (shown[1], shown[2][0]) == ((200, {"status": "ok"}), 503)
    assert (await front.post("/v1/embeddings", {}))[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Host": "evil.example"}, 403), ({"Origin": "http://evil.example"}, 403), ({"Content-Type": "text/plain"}, 415)],
)
async def test_a_web_page_reaches_no_model(front: _Front, headers: Mapping[str, str], status: int) -> None:
    assert (await front.post(_INFILL, {}, headers))[0] == status
    assert front.model.streams == []


async def test_with_a_key_nobody_enters_without_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text("s3cret\n")
    async with _run(_open_door(openai_key=path)) as front:
        for given in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Bearer é"}):
            assert (await front.post(_INFILL, {}, given))[0] == 401
        asking, stream = await front.begin(front.post(_INFILL, {}, {"Authorization": "Bearer s3cret"}))
        stream.send(_end("e"))
        assert (await asking)[0] == 200


@pytest.mark.parametrize(
    ("options", "environment", "mode", "text", "reason"),
    [
        ({"openai_key": "file"}, {}, 0o644, "s3cret", "--openai-key"),
        ({"openai_key": "file"}, {}, 0o600, "\n", "--openai-key"),
        ({"openai_key": "none"}, {}, 0o600, "", "--openai-key"),
        ({"openai_tls": "file"}, {}, 0o600, "none", "needs a private key"),
        ({"openai": "0.0.0.0:0"}, {}, 0o600, "", r"may reach 0\.0\.0\.0, so --openai needs a key there"),
        ({"openai": "0.0.0.0:0"}, {"MIDTOKEN_OPENAI_KEY": "s3cret"}, 0o600, "", "and --openai-tls FILE"),
    ],
    ids=["readable", "empty", "missing", "no certificate", "no key", "no encryption"],
)
def test_a_key_that_protects_nothing_and_an_address_without_one_are_refused(
    tmp_path: Path, options: dict[str, str], environment: Mapping[str, str], mode: int, text: str, reason: str
) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    path.chmod(mode)
    places = {name: value if name == "openai" else tmp_path / value for name, value in options.items()}
    with pytest.raises(UsageError, match=reason):
        _open_door(environment, **places)


async def test_another_address_with_tls_and_a_key_from_the_environment(tmp_path: Path) -> None:
    authority, path, trusted = trustme.CA(), tmp_path / "server.pem", ssl.create_default_context()
    authority.issue_cert("127.0.0.2").private_key_and_cert_chain_pem.write_to_path(path)
    authority.configure_trust(trusted)
    door = _open_door({"MIDTOKEN_OPENAI_KEY": "s3cret"}, openai="127.0.0.2:0", openai_tls=path)
    async with _run(door) as front:
        headers = {"Authorization": "Bearer s3cret"}
        async with front.session.get(f"{front.url}/v1/models", headers=headers, ssl=trusted) as response:
            assert response.status == 200


@pytest.fixture
async def client(front: _Front) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none") as client:
        yield client


async def test_the_openai_package_reads_an_answer_with_text_reason_and_usage(
    front: _Front, client: openai.AsyncOpenAI
) -> None:
    sent: Any = {"suffix": "\n", "max_tokens": 8, "user": "ann", "seed": 3, "n": 2, "stop": ["x"], "temperature": 0}
    asking, stream = await front.begin(client.completions.create(model="any", prompt="return Nod", **sent))
    stream.send(CompletionChunk("e", finish_reason=FinishReason.LENGTH))
    stream.send(_end("es", FinishReason.STOP, candidate=1))
    answer = (await asking).model_dump(exclude_unset=True)
    assert answer["choices"] == [
        {"index": 0, "text": "e", "logprobs": None, "finish_reason": "length"},
        {"index": 1, "text": "es", "logprobs": None, "finish_reason": "stop"},
    ]
    cached = {"prompt_tokens_details": {"cached_tokens": 15}}
    assert answer["usage"] == {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27} | cached
    assert (answer["object"], answer["model"], answer["id"][:5]) == ("text_completion", "default", "cmpl-")
    expected: Any = {"max_tokens": 8, "extent": Extent.UNLIMITED, "tenant": "ann", "seed": 3}
    assert stream.request == CompletionRequest("return Nod", "\n", stop=("x",), num_candidates=2, **expected)


@pytest.mark.parametrize("options", [{"stream_options": {"include_usage": True}}, {}])
async def test_the_openai_package_reads_a_stream(
    front: _Front, client: openai.AsyncOpenAI, options: dict[str, Any]
) -> None:
    asking, stream = await front.begin(client.completions.create(model="any", prompt="a", stream=True, **options))
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


async def test_the_openai_package_raises_what_went_wrong_and_asks_once(
    front: _Front, client: openai.AsyncOpenAI
) -> None:
    with pytest.raises(openai.BadRequestError, match="logprobs is not offered here"):
        await client.completions.create(model="any", prompt="a", logprobs=1)
    asking, stream = await front.begin(client.completions.create(model="any", prompt="a", stream=True))
    stream.feed("b")
    events = await asking
    stream.fail(ServerError("the model has ended"))
    with pytest.raises(openai.APIError, match="the model has ended"):
        [event async for event in events]
    refused, stream = await front.begin(client.completions.create(model="any", prompt="a"))
    stream.send(_end("", FinishReason.SUPERSEDED))
    with pytest.raises(openai.APIStatusError, match="a newer request"):
        await refused
    assert len(front.model.streams) == 2


async def test_a_port_that_closes_ends_what_it_is_asked() -> None:
    async with ClientSession() as session, asyncio.timeout(10):
        door, model = _open_door(), _Model()
        async with open_front(door, model, "default"):
            front = _Front(door.url, session, model)
            asking, stream = await front.begin(front.post(_INFILL, {}))
        with pytest.raises(ClientError):
            await asking
    assert stream.is_cancelled
