"""Triton's generate extension: what is asked reaches the model, and its answer the client."""

import json
import math
import re
from typing import Any

import pytest

from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    MidtokenError,
    OverloadedError,
    ServerError,
)
from inference.protocol.characters import Generated, NextByte, Surprisals, TextProbability
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats
from midtoken.http.generate import write_answer
from tests.support.front import FrontClient, last_chunk
from tests.support.hosted_models import read_configuration

_MODEL = "/v2/models/completion"
_STREAM, _WHOLE = f"{_MODEL}/generate_stream", f"{_MODEL}/versions/1/generate"
_BODY = {"prefix": "a"}


def _parse(text: str) -> list[Any]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]


async def test_a_request_and_its_responses_are_json(front: FrontClient) -> None:
    body = {"prefix": "ä", "stop": ["a", "b"], "max_tokens": 3, "temperature": 1, "explain": True}
    asking, stream = await front.begin(front.post(_STREAM, body))
    stream.send(CompletionChunk("é", text_ends=(1,), log_probs=(-0.5,)))
    stream.send(CompletionChunk("", stats=CompletionStats()))
    status, text = await asking
    first, last = _parse(text)
    assert first == {
        **{"model_name": "completion", "model_version": "1", "text": "é", "candidate": 0, "healed_bytes": 0},
        **{"finish_reason": "", "text_ends": [1], "log_probs": [-0.5]},
    }
    assert (status, json.loads(last["stats"])["num_tokens"]) == (200, 0)
    assert stream.request == CompletionRequest("ä", stop=("a", "b"), max_tokens=3, temperature=1.0, explain=True)


async def test_generate_returns_one_response(front: FrontClient) -> None:
    for chunks, status in (([], 200), ([CompletionChunk("a")], 400)):
        asking, stream = await front.begin(front.post(_WHOLE, _BODY))
        for chunk in (*chunks, last_chunk("b")):
            stream.send(chunk)
        assert (await asking)[0] == status


_ANSWERS = {
    "completion": (CompletionChunk("a", text_ends=(1,), log_probs=(-1.0,)),),
    "characters": (NextByte((1.0,) * 257), Surprisals((1.0,), 1.0), TextProbability(-1.0, -1.0, -1.0), Generated(b"a")),
}


@pytest.mark.parametrize("model", _ANSWERS)
def test_what_may_have_several_items_is_a_list(model: str) -> None:
    told: dict[str, Any] = {}
    for answer in _ANSWERS[model]:
        told |= json.loads(write_answer(model, answer))
    rows = re.findall(r'name: "(\w+)", data_type: \w+, dims: \[ (-?\d+) \]', read_configuration(model))
    lists = {name for name, dims in rows if dims != "1" and name in told}
    assert {name for name, value in told.items() if isinstance(value, list)} == lists != set()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequestError("no"), 400),
        (OverloadedError("no"), 503),
        (InferenceServerUnreachableError("no"), 503),
        (ServerError("no"), 500),
    ],
)
async def test_an_error_has_a_status_or_is_the_last_event(
    front: FrontClient, error: MidtokenError, status: int
) -> None:
    for before in ([], [CompletionChunk("a")]):
        asking, stream = await front.begin(front.post(_STREAM, _BODY))
        for chunk in before:
            stream.send(chunk)
        stream.fail(error)
        answered, text = await asking
        assert answered == (200 if before else status)
        assert _parse(text)[len(before) :] == [{"error": error.stream_text}]


_WRONG: dict[str, tuple[Any, ...]] = {
    "max_tokens": (None, True, "3", 3.0, [3.0], {}, 2**31, -(2**31) - 1),
    "temperature": (None, True, "1", [[1]], 1e39, math.nan, 10**400),
    "stop": (1, [1], [None], [["a"]]),
    **dict.fromkeys(("unknown", "explain", "heartbeat", "prefix"), (1, [], ["a", "b"])),
}


@pytest.mark.parametrize(
    "body",
    [[], "prefix", 1, None, *({**_BODY, name: value} for name, values in _WRONG.items() for value in values)],
    ids=lambda body: repr(body)[:60],
)
@pytest.mark.parametrize("path", [_STREAM, _WHOLE])
async def test_a_field_of_another_type_is_refused_by_name(front: FrontClient, body: Any, path: str) -> None:
    status, text = await front.post(path, body)
    names = [name for name in body if name != "prefix" or body[name] != "a"] if isinstance(body, dict) else ["the body"]
    assert (status, front.model.streams) == (400, [])
    assert all(name in json.loads(text)["error"] for name in names)
