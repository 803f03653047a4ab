import asyncio
import gzip
import io
from asyncio import timeout
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from inference.config import EngineConfig
from inference.protocol.completion import CompletionRequest
from inference.serving.client import Client
from inference.serving.launcher import ServerOptions
from inference.serving.loopback import listen
from inference.serving.ports import MAX_BODY_BYTES, open_ports, serve_http
from inference.serving.readiness import Readiness
from inference.serving.triton_installation import GRPC, HTTP
from tests.support.fake_triton import build_last_chunk, run_fake_triton, say

_JSON = {"Content-Type": "application/json"}
_COMPLETE = "/v2/models/completion/generate_stream"
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
    async with open_ports([0, 0], options, Readiness()) as [http, _]:
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


async def test_requests_that_only_read_and_their_answers_are_passed_on(triton: tuple[str, list[object]]) -> None:
    answer = await _ask(triton[0], "GET", b"body", {**_JSON, "X-Other": "1"})
    assert answer == (418, "text/event-stream", "data: 1\n")
    assert triton[1] == [("GET", _PATH, "application/octet-stream", b"")]


@pytest.mark.parametrize(
    ("status", "path", "body", "headers"),
    [
        (403, _COMPLETE, b"{}", {**_JSON, "Host": "evil.example"}),
        (403, _COMPLETE, b"{}", {**_JSON, "Origin": "http://evil.example"}),
        (415, _COMPLETE, b"{}", {"Content-Type": "text/plain"}),
        (415, _COMPLETE, b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}),
        (415, _COMPLETE, b"{}", {}),
        (400, _COMPLETE, b"[" * 300_000, _JSON),
        (400, _COMPLETE, b'{"prefix": "\\"", "x": ' + b'{"a":' * 300_000, _JSON),
        (400, _COMPLETE, b'{"seed": ' + b"1" * 300_000 + b"}", _JSON),
        (400, _COMPLETE, b'{"prefix": "", "max_tokens": 1e400}', _JSON),
        (413, _COMPLETE, b" " * (MAX_BODY_BYTES + 1), _JSON),
        (404, "/v2/models/other/generate", b"{}", _JSON),
        (405, "/v2/models/completion/infer", b"{}", _JSON),
        (405, "/v2/models/completion/versions/2/generate", b"{}", _JSON),
    ],
)
async def test_what_could_end_tritonserver_or_comes_from_elsewhere_does_not_reach_it(
    triton: tuple[str, list[object]], status: int, path: str, body: bytes, headers: dict[str, str]
) -> None:
    assert (await _ask(triton[0].replace(_PATH, path), "POST", body, headers))[0] == status
    assert triton[1] == []


async def test_while_tritonserver_is_started_the_answer_says_so(options: ServerOptions) -> None:
    async with open_ports([0, 0], options, Readiness()) as [http, _]:
        status, _, text = await _ask(f"http://127.0.0.1:{http}/", "GET", b"", {})
        assert (status, text) == (503, '{"error": "tritonserver does not answer; it may be starting."}')
        answer = await _ask(f"http://127.0.0.1:{http}{_COMPLETE}", "POST", b'{"prefix": ""}', _JSON)
        assert answer == (503, "application/json", text)


@pytest.mark.parametrize("path", ["/v2/health/ready", "/v2/models/completion/ready"])
async def test_triton_is_not_ready_while_no_completion_would_be_answered(
    triton: tuple[str, list[object]], path: str
) -> None:
    url = triton[0].replace(_PATH, path)
    assert await _ask(url, "GET", b"", {}) == (503, "application/json", '{"error": "the server is starting"}')


async def test_completions_pass_the_grpc_port(options: ServerOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(options.state_dir)
    async with open_ports([0, 0], options, Readiness()) as [_, grpc]:
        for _ in range(2):  # tritonserver is started again
            async with (
                run_fake_triton(say(build_last_chunk("done" * 100_000)), f"unix:{options.find_socket(GRPC).name}"),
                Client(f"localhost:{grpc}") as client,
            ):
                [chunk] = [each async for each in client.stream(CompletionRequest("a" * 1_000_000))]
                assert chunk.text == "done" * 100_000


@asynccontextmanager
async def _run_counter(max_connections: int = 8) -> AsyncIterator[int]:
    """Yields the port of an application that tells how long a body is."""

    async def tell(request: web.Request) -> web.Response:
        return web.json_response(len(await request.read()))

    app, listener = web.Application(), listen(0)
    app.router.add_post("/", tell)
    async with serve_http(app, listener, patience_s=0.2, max_connections=max_connections):
        yield listener.getsockname()[1]


async def _read_status(port: int, sent: bytes) -> str:
    """The status of the answer; none if the connection is closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        async with timeout(20):
            return (await reader.readline())[9:12].decode()
    except ConnectionError:
        return ""
    finally:
        writer.close()


_HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (_HEAD + b"Content-Length: 2\r\n\r\n{}", "200"),
        (_HEAD + b"Content-Length: 9\r\n\r\n{", "408"),
        (_CHUNKED + b"1\r\n{\r\n", "408"),
        (_CHUNKED + b"zz\r\n{\r\n", "400"),
        (_HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "400"),
        (_HEAD + b"".join(b"X-%d: a\r\n" % number for number in range(10**4)) + b"\r\n", "400"),
        (_HEAD, ""),
        (b"", ""),
    ],
    ids=["whole", "short", "endless", "no chunk", "two lengths", "ten thousand headers", "no end of a head", "nothing"],
)
async def test_what_does_not_arrive_is_waited_for_only_a_while(sent: bytes, status: str) -> None:
    async with _run_counter() as port:
        assert await _read_status(port, sent) == status


async def test_a_connection_that_is_one_too_many_is_closed_and_the_others_are_answered() -> None:
    whole = _HEAD + b"Content-Length: 0\r\n\r\n"
    async with _run_counter(max_connections=1) as port:
        _, first = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.05)
        assert not await _read_status(port, whole)
        first.close()
        await asyncio.sleep(0.05)
        assert await _read_status(port, whole) == "200"


@pytest.mark.parametrize("ends", [False, True])
async def test_a_client_that_closes_its_sending_side_is_answered_and_one_that_closes_all_ends_its_request(
    ends: bool,
) -> None:
    has_begun, has_ended, may_answer = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer(_request: web.Request) -> web.Response:
        has_begun.set()
        try:
            await may_answer.wait()
            return web.Response(text="answer")
        finally:
            has_ended.set()

    app, listener = web.Application(), listen(0)
    app.router.add_post("/", answer)
    async with serve_http(app, listener), timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
        writer.write(2 * (_HEAD + b"Content-Length: 2\r\n\r\n{}"))
        writer.write_eof()
        await has_begun.wait()
        await asyncio.sleep(0.3)
        assert not has_ended.is_set()
        if not ends:
            may_answer.set()
            assert (await reader.read()).count(b"\r\n\r\nanswer") == 2
        writer.close()
        await has_ended.wait()


async def test_a_body_is_not_unpacked() -> None:
    body = gzip.compress(b" " * 2**20)
    async with _run_counter() as port:
        headers = {"Content-Encoding": "gzip"}
        assert await _ask(f"http://127.0.0.1:{port}/", "POST", body, headers) == (
            200,
            "application/json",
            str(len(body)),
        )
