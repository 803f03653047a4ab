"""Chats and embeddings reach the engine as they are, and the key of the front does not."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientError, web

from inference.serving.loopback import listen
from inference.serving.ports import serve_http
from midtoken.front.app import FrontOptions
from tests.support.access import ANN, bearer, write_keys
from tests.support.front import FrontClient, open_endpoint, run_front

_CHAT, _KEY = "/v1/chat/completions", bearer(ANN)


class _Engine:
    """Answers in two parts, the second when `is_told`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes, dict[str, str]]] = []
        self.is_told, self.breaks, self.status = asyncio.Event(), False, 200

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path, await request.read(), dict(request.headers)))
        response = web.StreamResponse(status=self.status, headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: a\n\n")
        await self.is_told.wait()
        if self.breaks and request.transport is not None:
            request.transport.abort()
        await response.write(b"data: b\n\n")
        return response


@asynccontextmanager
async def _run(folder: Path) -> AsyncIterator[tuple[FrontClient, _Engine]]:
    engine, app, listener = _Engine(), web.Application(), listen(0)
    app.router.add_post("/{path:.*}", engine.answer)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with serve_http(app, listener):
        options = FrontOptions("default", engine_url=url, engine_key="engine")
        async with run_front(open_endpoint(keys=write_keys(folder)), options) as front:
            yield front, engine


@pytest.mark.parametrize("path", [_CHAT, "/v1/embeddings"])
async def test_a_body_is_passed_on_unchanged_and_the_answer_as_it_comes(path: str, tmp_path: Path) -> None:
    body = b'{"messages": [ "password = \'hunter2correct\'" ]}'
    async with _run(tmp_path) as (front, engine):
        headers = {"Content-Type": "application/json", "X-Session-ID": "ann's", "User-Agent": "ann", **_KEY}
        async with front.session.post(f"{front.url}{path}", data=body, headers=headers) as response:
            assert await response.content.readuntil(b"\n\n") == b"data: a\n\n"
            engine.is_told.set()
            assert (response.status, await response.read()) == (200, b"data: b\n\n")
            assert response.content_type == "text/event-stream"
    ((asked, sent, told),) = engine.asked
    assert (asked, sent, told["Authorization"]) == (path, body, "Bearer engine")
    assert not {ANN, "ann", "ann's"} & set(" ".join(told.values()).split())


async def test_what_the_engine_refuses_is_passed_on_and_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with _run(tmp_path) as (front, engine):
        engine.status = 422
        engine.is_told.set()
        assert (await front.post(_CHAT, {}, _KEY))[0] == 422
    [message] = caplog.messages
    assert f" {_CHAT}: status 422, invalid_request_error" in message


async def test_half_an_answer_is_not_taken_for_all_of_it(tmp_path: Path) -> None:
    async with _run(tmp_path) as (front, engine):
        engine.breaks = True
        engine.is_told.set()
        with pytest.raises(ClientError):
            await front.post(_CHAT, {}, _KEY)


async def test_without_the_key_of_the_front_nothing_is_passed_on(tmp_path: Path) -> None:
    async with _run(tmp_path) as (front, engine):
        assert (await front.post(_CHAT, {}))[0] == 401
    assert engine.asked == []


async def test_an_engine_that_does_not_answer_and_none_at_all(front: FrontClient) -> None:
    with listen(0) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with run_front(options=FrontOptions("default", engine_url=address)) as other:
        status, text = await other.post(_CHAT, {})
    assert (status, json.loads(text)["error"]["message"]) == (503, f"the server at {address} does not answer")
    status, text = await front.post(_CHAT, {})
    error = json.loads(text)["error"]
    assert (status, error["type"], "--engine URL" in error["message"]) == (404, "invalid_request_error", True)
