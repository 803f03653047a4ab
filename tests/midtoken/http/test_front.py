"""What is asked at the HTTP port reaches the model, and its answer the editor."""

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    OverloadedError,
    ServerError,
    ServerUnreachableError,
)
from inference.protocol.completion import (
    CompletionChunk,
    CompletionRequest,
    CompletionStats,
    Extent,
    FinishReason,
    Priority,
    RelatedFile,
)
from tests.support.front import FrontClient, last_chunk, run_front
from tests.support.secret_forms import SECRETS

_COMPLETION, _INFILL, _HEALTH = "/v1/completions", "/infill", "/health"

_OTHERS = [{"text": "a = 1\r\n", "filename": "/home/ann/a.py", "time": 3}, {"text": "b = 2\n"}]
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
            [last_chunk("e")],
            {
                "prefix": "x\n  ret",
                "suffix": "\n",
                "related": (RelatedFile("", "b = 2\n"), RelatedFile("a.py", "a = 1\n")),
            }
            | {"max_tokens": 9, "stop": ("x",), "extent": Extent.BLOCK},
            {"content": "e"},
        ),
        (
            _INFILL,
            {"prompt": "Nod"},
            [CompletionChunk("e\n"), last_chunk("")],
            {"prefix": "Nod", "max_tokens": 128},
            {"content": "e\n", "stop": True, "stop_type": "eos", "tokens_cached": 27, "truncated": False}
            | {"has_new_line": True, "timings": _TIMINGS, "generation_settings": {"n_predict": 128, "temperature": 0}},
        ),
        (
            _INFILL,
            {"t_max_predict_ms": -1, "n_predict": -1},
            [CompletionChunk("a\n"), last_chunk("b")],
            {"prefix": "", "max_tokens": 1024},
            {"content": "a\nb"},
        ),
        (
            _INFILL,
            {"n_predict": 0, "input_extra": _OTHERS[1:], "response_fields": [""]},
            [last_chunk("", FinishReason.PREFILLED)],
            {"prefix": "", "related": (RelatedFile("", "b = 2\n"),), "max_tokens": 1, "priority": Priority.PREFETCH},
            {},
        ),
        (
            _COMPLETION,
            {"prompt": ["a"], "temperature": 0.5, "top_p": 1, "top_k": -1, "presence_penalty": 0, "n": 2}
            | {"max_tokens": 4096, "echo": None, "unknown": 1},
            [last_chunk("e"), last_chunk("f", candidate=1)],
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
    front: FrontClient,
    path: str,
    body: object,
    chunks: list[CompletionChunk],
    request_fields: dict[str, Any],
    shown: dict[str, object],
) -> None:
    request, answer = await front.ask(path, body, *chunks)
    assert request == CompletionRequest(**{"extent": Extent.UNLIMITED, **request_fields})
    assert answer | shown == answer


@pytest.mark.parametrize(("prompt", "was_cut"), [("a", False), ("a", True), ("a\n" * 40_000, False)])
async def test_an_answer_says_whether_the_prompt_was_cut(front: FrontClient, prompt: str, was_cut: bool) -> None:
    end = replace(last_chunk("e"), stats=CompletionStats(was_cut=was_cut))
    for path in (_INFILL, "/completion"):
        _, answer = await front.ask(path, {"prompt": prompt}, end)
        assert answer["truncated"] == (was_cut or len(prompt) > 1)


async def test_only_the_fields_that_are_wanted_are_answered_without_blanks_as_llama_vim_needs_it(
    front: FrontClient,
) -> None:
    asking, stream = await front.begin(
        front.post(_INFILL, {"response_fields": ["content", "timings/prompt_n", "none"]})
    )
    stream.send(last_chunk("e"))
    assert await asking == (200, '{"content":"e","timings/prompt_n":5}')


@pytest.mark.parametrize(
    ("default", "body", "shown"),
    [
        (0.0, {}, "ems() + 1"),
        (0.0, {"confidence": 0.4}, "ems()"),
        (0.9, {}, "ems"),
        (0.9, {"confidence": 0}, "ems() + 1"),
    ],
)
async def test_a_text_ends_where_it_is_less_likely_than_the_request_or_the_server_says(
    default: float, body: dict[str, Any], shown: str
) -> None:
    chunk = CompletionChunk("ems() + 1", 0, (3, 5, 9), tuple(map(math.log, (0.95, 0.5, 0.2))))
    async with run_front(is_remote=False, confidence=default) as front:
        for path, field in ((_COMPLETION, "text"), (_INFILL, "content")):
            request, answer = await front.ask(path, {"prompt": "a", **body}, chunk, last_chunk(""))
            assert answer.get("choices", [answer])[0][field] == shown
            assert request.min_probability == body.get("confidence", default)


async def test_several_infills_are_a_list(front: FrontClient) -> None:
    chunks = CompletionChunk("a", 0, finish_reason=FinishReason.STOP), last_chunk("b", candidate=1)
    _, answers = await front.ask(_INFILL, {"n_cmpl": 2}, *chunks)
    shown = [(each["index"], each["content"], each["stop_type"]) for each in answers]
    assert shown == [(0, "a", "word"), (1, "b", "eos")]


async def test_an_engine_that_generates_one_text_is_asked_for_one_infill(front: FrontClient) -> None:
    asking, several = await front.begin(front.post(_INFILL, {"n_cmpl": 3}))
    several.fail(InvalidRequestError("several texts"))
    (await front.find_stream(1)).send(last_chunk("e"))
    assert json.loads((await asking)[1])[0]["content"] == "e"
    assert [each.request.num_candidates for each in front.model.streams] == [3, 1]


@pytest.mark.parametrize(("path", "name"), [(_INFILL, "n or n_cmpl"), (_COMPLETION, "n")])
async def test_what_the_engine_refuses_has_the_name_that_the_client_gave_it(
    front: FrontClient, path: str, name: str
) -> None:
    asking, stream = await front.begin(front.post(path, {"prompt": "a", "stream": True}))
    stream.fail(InvalidRequestError("num_candidates is 2; there is room for 1"))
    assert json.loads((await asking)[1])["error"]["message"] == f"{name} is 2; there is room for 1"


@pytest.mark.parametrize(
    ("path", "name", "num_asked", "status"), [(_INFILL, "n_cmpl", 2, 200), (_COMPLETION, "n", 1, 400)]
)
async def test_what_the_engine_refuses_also_for_one_text_or_of_several_completions_is_refused_with_the_reason(
    front: FrontClient, path: str, name: str, num_asked: int, status: int
) -> None:
    asking, _ = await front.begin(front.post(path, {"prompt": "a", name: 3}))
    for number in range(num_asked):
        (await front.find_stream(number)).fail(InvalidRequestError("the text is too long"))
    found, body = await asking
    assert (found, len(front.model.streams), "the text is too long" in body) == (status, num_asked, True)


_IN_SECRET = "password = 'hunter2correct"
_SECRET = "password = 'hunter2correct'\n"


@pytest.mark.parametrize(("is_remote", "sent"), [(False, _SECRET), (True, "password = 'REDACTED'\n")])
async def test_secrets_are_replaced_where_text_may_leave_the_machine(is_remote: bool, sent: str) -> None:
    async with run_front(is_remote=is_remote) as front:
        body = {"input_extra": [{"text": _SECRET}], "prompt": "x", "input_suffix": _SECRET}
        request, _ = await front.ask(_INFILL, body)
    assert (request.related, request.suffix) == ((RelatedFile("", sent),), sent)


async def test_of_many_other_files_the_newest_are_taken_whole(front: FrontClient) -> None:
    body = {"input_extra": [{"text": f"{name} = 1\n" * 6000} for name in "abc"], "prompt": "x"}
    request, _ = await front.ask(_INFILL, body)
    assert request.related == (RelatedFile("", "c = 1\n" * 6000),)


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
    front: FrontClient, body: dict[str, Any], headers: Mapping[str, str], is_named: bool
) -> None:
    documents = []
    for agent in ("vim", "vim", "code"):
        asking, stream = await front.begin(front.post(_INFILL, body, {**headers, "User-Agent": agent}))
        documents.append(stream.request.document)
        asking.cancel()
    assert [bool(each) for each in documents] == [is_named] * 3
    assert len(set(documents)) == (2 if is_named else 1)


async def test_no_secret_and_no_name_in_a_field_reaches_the_model(front: FrontClient) -> None:
    secret, headers = SECRETS[0].secret, {"X-Session-ID": "ann's", "User-Agent": "ann"}
    fields = {"user": f"ann {secret}", "stop": [f"key = '{secret}'"], "prompt": f"key = '{secret}'\nreturn Nod"}
    requests = []
    for user in (fields["user"], fields["user"], "bob", ""):
        asking, stream = await front.begin(front.post(_COMPLETION, {**fields, "user": user}, headers))
        requests.append(stream.request)
        asking.cancel()
    assert not any(name in repr(requests) for name in (secret, "ann", "bob"))
    assert requests[0].stop == ()
    first, again, other, nobody = (each.tenant for each in requests)
    assert (first == again != other, bool(other), nobody) == (True, True, "")


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("path", "field"),
    [(_COMPLETION, "text"), (_INFILL, "content"), ("/completion", "content"), ("/api/generate", "response")],
)
async def test_in_a_secret_each_text_is_empty_and_the_answer_says_why(
    front: FrontClient, path: str, field: str, streams: bool
) -> None:
    status, text = await front.post(path, {"prompt": _IN_SECRET, "stream": streams, "n": 2})
    lines = [line.removeprefix("data: ") for line in text.splitlines() if "{" in line]
    answers = [answer for line in lines for answer in _list(json.loads(line))]
    assert (status, front.model.streams, bool(answers)) == (200, [], True)
    for answer in answers:
        assert answer["reason"] == "the cursor is in a secret, which is not sent"
        assert [each.get(field) for each in answer.get("choices", [answer])] in ([""], ["", ""])


def _list(answer: Any) -> list[Any]:
    return answer if isinstance(answer, list) else [answer]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((_INFILL, {"stream": streams}) for streams in (False, True)),
        ("/v2/models/completion/generate_stream", {"prefix": "a"}),
    ],
)
async def test_closing_the_connection_ends_the_request(front: FrontClient, path: str, body: dict[str, Any]) -> None:
    asking, stream = await front.begin(front.post(path, body))
    stream.feed("e")
    asking.cancel()
    while not stream.is_cancelled:
        await asyncio.sleep(0)


async def test_after_its_time_an_infill_ends_if_it_has_a_line(front: FrontClient) -> None:
    asking, stream = await front.begin(front.post(_INFILL, {"t_max_predict_ms": 1}))
    for text in ("a", "b"):
        stream.feed(text)
        await asyncio.sleep(0.01)
    assert not asking.done()
    stream.feed("\nc")
    answer = json.loads((await asking)[1])
    assert (answer["content"], answer["stop_type"]) == ("ab\nc", "limit")


async def test_a_stream_of_an_infill_ends_with_an_event_also_after_a_defect_whose_text_is_not_told(
    front: FrontClient,
) -> None:
    events = []
    for end in (last_chunk("b"), ZeroDivisionError("text of a person")):
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
        (InferenceServerUnreachableError("down"), 503, "unavailable_error", "down"),
        (OverloadedError("full"), 503, "unavailable_error", "full"),
        (ServerError("bad"), 500, "server_error", "bad"),
        (ZeroDivisionError("text of a person"), 500, "server_error", "unexpected ZeroDivisionError"),
        (last_chunk("", FinishReason.SUPERSEDED), 499, "superseded_error", "a newer request"),
        (
            replace(last_chunk("x", FinishReason.SUPERSEDED), text_ends=(1,), log_probs=(-9.0,)),
            *(499, "superseded_error", "a newer request"),
        ),
    ],
    ids=["unreachable", "engine unreachable", "overloaded", "failed", "defect", "superseded", "unlikely, superseded"],
)
async def test_a_failure_has_a_status(
    front: FrontClient, end: CompletionChunk | Exception, status: int, kind: str, reason: str
) -> None:
    asking, stream = await front.begin(front.post(_INFILL, {"stream": True, "id_slot": 0, "confidence": 0.5}))
    stream.send(end)
    answered, text = await asking
    error = json.loads(text)["error"]
    assert (answered, error["type"], reason in error["message"], "person" in text) == (status, kind, True, False)


@pytest.mark.parametrize(("path", "status"), [(_INFILL, 200), ("/completion", 200), (_COMPLETION, 499)])
async def test_where_clients_show_a_message_for_each_status_what_is_superseded_is_empty_and_says_so(
    front: FrontClient, path: str, status: int
) -> None:
    asking, stream = await front.begin(front.post(path, {"prompt": "a", "id_slot": 0}))
    stream.feed("b")
    stream.send(last_chunk("", FinishReason.SUPERSEDED))
    answered, text = await asking
    answer = json.loads(text)
    assert (answered, answer.get("content", "")) == (status, "")
    assert "a newer request" in str(answer.get("reason", answer.get("error")))


async def test_a_refusal_is_logged_without_what_the_client_has_written(
    front: FrontClient, caplog: pytest.LogCaptureFixture
) -> None:
    asked = [("/hunter2", {}), (_INFILL, {"temperature": "hunter2"}), (_INFILL, {"prompt": _IN_SECRET})]
    for path, body in asked:
        await front.post(f"{path}?hunter2", body, {"X-Session-ID": "hunter2"})
    asking, stream = await front.begin(front.post(_INFILL, {"stream": True}))
    stream.feed("a")
    stream.fail(ServerError("hunter2"))
    await asking
    told = [message.split(maxsplit=2)[2] for message in caplog.messages]
    assert told == [
        "another address: status 404, invalid_request_error",
        "/infill: status 400, invalid_request_error",
        "/infill: the cursor is in a secret, which is not sent",
        "/infill: status 500, server_error",
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b" " * 2**23, 413),
        (b'{"prompt": "%s"}' % (b"a" * (2**21 + 1)), 400),
        (b'{"prompt": "%s"}' % (b"\\u00e9" * 2**19), 200),
    ],
    ids=["longer than a body", "longer than a text", "long enough"],
)
async def test_a_long_body_is_refused_or_answered_while_others_are(
    front: FrontClient, body: bytes, status: int
) -> None:
    front.model.answer = "e"
    asking = asyncio.ensure_future(front.post(_INFILL, body))
    async with front.session.get(f"{front.url}{_HEALTH}") as response:
        assert response.status == 200
    assert (await asking)[0] == status


@pytest.mark.parametrize(
    ("failure", "problem", "status"), [(None, "", 200), (ServerUnreachableError("gone"), "", 503), (None, "x", 503)]
)
async def test_the_health_is_that_of_the_engine(
    front: FrontClient, failure: Exception | None, problem: str, status: int
) -> None:
    front.model.failure, front.model.problem = failure, problem
    async with front.session.get(f"{front.url}{_HEALTH}") as response:
        assert (response.status, await response.json() == {"status": "ok"}) == (status, status == 200)


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Host": "evil.example"}, 403), ({"Origin": "http://evil.example"}, 403), ({"Content-Type": "text/plain"}, 415)],
)
async def test_a_web_page_reaches_no_model(front: FrontClient, headers: Mapping[str, str], status: int) -> None:
    assert (await front.post(_INFILL, {}, headers))[0] == status
    assert front.model.streams == []


async def test_of_a_long_text_what_is_near_the_cursor_is_cleared_and_sent(front: FrontClient) -> None:
    line = 'password = "x"\n'
    request, _ = await front.ask(_COMPLETION, {"prompt": line * 20_000, "suffix": line * 20_000}, last_chunk("e"))
    assert 60_000 < len(request.prefix) <= 2**17
    assert request.prefix.startswith("password")
    assert len(request.suffix) <= 2**17
