import asyncio
import json
import math
import re
from asyncio import timeout
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession

from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    MidtokenError,
    OverloadedError,
    ServerError,
)
from inference.platforms import listen
from inference.protocol.arrays import Array, chunk_to_arrays, request_from_arrays
from inference.protocol.characters import Generated, NextByte, Surprisals, TextProbability
from inference.protocol.completion import CompletionChunk, CompletionRequest, CompletionStats
from midtoken.connection import Connection, ServerAddress
from midtoken.http.app import App
from midtoken.http.generate import write_answer
from tests.support.adapters import read_configuration
from tests.support.fake_triton import FakeTriton, run_fake_triton, say

_STREAM, _WHOLE = "completion/generate_stream", "completion/generate"
_BODY = {"prefix": "a"}


@asynccontextmanager
async def _run(*responses: Mapping[str, Array] | str, waits: bool = False) -> AsyncIterator[tuple["_Ask", FakeTriton]]:
    """Yields what asks for a completion over HTTP, and the server that gives these responses."""
    async with run_fake_triton(say(*responses, waits=waits)) as fake, ClientSession() as session:
        connection, listener = Connection(ServerAddress(fake.url)), listen(0)
        async with App(connection, "default").serve(listener):
            yield _Ask(session, f"http://127.0.0.1:{listener.getsockname()[1]}/v2/models/"), fake
        await connection.close()


class _Ask:
    def __init__(self, session: ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def __call__(self, path: str, body: Any) -> tuple[int, list[Any]]:
        """The status of the answer, and the objects in it."""
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._url + path, data=json.dumps(body), headers=headers) as answer:
            lines = (await answer.text()).splitlines()
        return answer.status, [json.loads(line.removeprefix("data: ")) for line in lines if line]


async def test_a_request_and_its_responses_are_json() -> None:
    first = CompletionChunk("é", text_ends=(1,), log_probs=(-0.5,))
    last = CompletionChunk("", stats=CompletionStats())
    async with _run(*map(chunk_to_arrays, (first, last))) as (ask, fake):
        body = {"prefix": "ä", "stop": ["a", "b"], "max_tokens": 3, "temperature": 1, "explain": True}
        status, events = await ask(_STREAM, body)
    assert events[0] == {
        **{"model_name": "completion", "model_version": "1", "text": "é", "candidate": 0, "healed_bytes": 0},
        **{"finish_reason": "", "text_ends": [1], "log_probs": [-0.5]},
    }
    assert json.loads(events[1]["stats"])["num_tokens"] == 0
    assert (status, len(events)) == (200, 2)
    request = CompletionRequest("ä", stop=("a", "b"), max_tokens=3, temperature=1.0, explain=True)
    assert [request_from_arrays(call.arrays) for call in fake.calls] == [request]


async def test_generate_returns_one_response() -> None:
    chunk = chunk_to_arrays(CompletionChunk("a", stats=CompletionStats()))
    for responses, status in (([chunk], 200), ([chunk_to_arrays(CompletionChunk("a")), chunk], 400)):
        async with _run(*responses) as (ask, _):
            assert (await ask("completion/versions/1/generate", _BODY))[0] == status


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
async def test_an_error_has_a_status_or_is_the_last_event(error: MidtokenError, status: int) -> None:
    text = error.stream_text
    for before in ([], [chunk_to_arrays(CompletionChunk("a"))]):
        async with _run(*before, text) as (ask, _):
            answered, events = await ask(_STREAM, _BODY)
            assert answered == (200 if before else status)
            assert events[-1] == {"error": text}
            assert len(events) == len(before) + 1


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
async def test_a_field_of_another_type_is_refused_by_name(body: Any, path: str) -> None:
    async with _run("never") as (ask, fake):
        status, [refusal] = await ask(path, body)
    names = [name for name in body if name != "prefix" or body[name] != "a"] if isinstance(body, dict) else ["the body"]
    assert status == 400
    assert all(name in refusal["error"] for name in names)
    assert fake.calls == []


async def test_a_connection_that_ends_cancels_before_anything_is_sent() -> None:
    async with _run(waits=True) as (ask, fake):
        asked = asyncio.create_task(ask(_STREAM, _BODY))
        while not fake.calls:
            await asyncio.sleep(0.01)
        asked.cancel()
        async with timeout(20):
            await fake.cancelled.wait()
