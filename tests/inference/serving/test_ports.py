import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from inference.config import EngineConfig
from inference.protocol.completion import CompletionRequest
from inference.serving.client import Client
from inference.serving.launcher import ServerOptions
from inference.serving.ports import open_ports
from inference.serving.triton_installation import GRPC, HTTP
from tests.support.fake_triton import build_last_chunk, run_fake_triton, say

_JSON = {"Content-Type": "application/json"}
_PATH = "/v2/models/a%2Fb/generate?x=%20y"


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    folder = tmp_path / ("a path that is longer than that of a socket may be" * 3)
    folder.mkdir()
    return ServerOptions(EngineConfig(tmp_path), tmp_path, folder)


@pytest.fixture
async def triton(options: ServerOptions, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, list[object]]]:
    """The address of a port, and what has arrived at tritonserver's HTTP socket behind it."""
    got: list[object] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        got.append((request.method, request.raw_path, request.content_type, await request.read()))
        return web.Response(status=418, text="data: 1\n", content_type="text/event-stream")

    monkeypatch.chdir(options.state_dir)
    async with open_ports([0, 0, 0], options) as [http, *_]:
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.UnixSite(runner, options.find_socket(HTTP).name).start()
        yield f"http://127.0.0.1:{http}{_PATH}", got
        await runner.cleanup()


async def _ask(url: str, method: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, str]:
    async with (
        ClientSession() as session,
        session.request(
            method, url, data=io.BytesIO(body), headers=headers, skip_auto_headers=["Content-Type"]
        ) as answer,
    ):
        return answer.status, answer.content_type, await answer.text()


@pytest.mark.parametrize("body", [b'{"prefix": "%s"}' % (b"[" * 10_000), b'{"prefix": "a\xff"}', b"prefix=a", b'"\\'])
async def test_requests_and_answers_are_passed_on(triton: tuple[str, list[object]], body: bytes) -> None:
    answer = await _ask(triton[0], "POST", body, {**_JSON, "X-Other": "1"})
    assert answer == (418, "text/event-stream", "data: 1\n")
    assert triton[1] == [("POST", _PATH, "application/json", body)]


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (403, b"{}", {**_JSON, "Host": "evil.example"}),
        (403, b"{}", {**_JSON, "Origin": "http://evil.example"}),
        (415, b"{}", {"Content-Type": "text/plain"}),
        (415, b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}),
        (415, b"{}", {}),
        (400, b"[" * 300_000, _JSON),
        (400, b'{"prefix": "\\"", "x": ' + b'{"a":' * 300_000, _JSON),
        (400, b'"' + b'\\"' * 300_000 + b'"' + b"[" * 300_000, _JSON),
        (413, b" " * (64 * 2**20 + 1), _JSON),
    ],
)
async def test_what_could_end_tritonserver_or_comes_from_elsewhere_does_not_reach_it(
    triton: tuple[str, list[object]], status: int, body: bytes, headers: dict[str, str]
) -> None:
    assert (await _ask(triton[0], "POST", body, headers))[0] == status
    assert triton[1] == []


async def test_while_tritonserver_is_started_the_answer_says_so(options: ServerOptions) -> None:
    async with open_ports([0, 0, 0], options) as [http, _, metrics]:
        for port in (http, metrics):
            status, _, text = await _ask(f"http://127.0.0.1:{port}/", "GET", b"", {})
            assert (status, text) == (503, '{"error": "tritonserver does not answer; it may be starting."}')


async def test_completions_pass_the_grpc_port(options: ServerOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(options.state_dir)
    async with open_ports([0, 0, 0], options) as [_, grpc, _]:
        for _ in range(2):  # tritonserver is started again
            async with (
                run_fake_triton(say(build_last_chunk("done" * 100_000)), f"unix:{options.find_socket(GRPC).name}"),
                Client(f"localhost:{grpc}") as client,
            ):
                [chunk] = [each async for each in client.stream(CompletionRequest("a" * 1_000_000))]
                assert chunk.text == "done" * 100_000
