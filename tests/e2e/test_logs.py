"""No log of a real process has text of a request, of a header or of another server, whatever goes wrong."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference.healing.loaded_tokenizer import load_tokenizer
from midtoken.installed import find_bundled_model
from tests.support.fake_llama_server import FakeLlamaServer, run_fake_llama_server
from tests.support.lsp_editor import Script, StartEditor, build_capabilities
from tests.support.servers import EMBEDDED, TRITON, RunningServer, find_real, needs_triton, run_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_CANARY = "Kanari7vogel"  # in each field
_TEXT = f"class {_CANARY}:\n    pass\n\nreturn {_CANARY[:6]}"
_ECHO = json.dumps({"error": {"message": _CANARY, "type": _CANARY, "code": _CANARY}})
# What the engine answers: it says again what it was sent.
_ANSWERS = (
    *((status, "application/json", _ECHO) for status in (400, 401, 404, 429, 500, 502, 503)),
    (200, f"text/{_CANARY}", _TEXT),
    (200, "application/json", _TEXT),
    (200, "text/event-stream", f"data: {_ECHO}\n\n"),
    (200, "text/event-stream", f"error: {_ECHO}\n\n"),
    (200, "text/event-stream", f"data: {_TEXT}\n\n"),
    (200, "text/event-stream", f'data: {{"completion_probabilities": "{_CANARY}", "{_CANARY}": 1}}\n\n'),
)
_HEAD = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Type: application/json\r\n"
_GENERATE = "/v2/models/completion/generate_stream"
_BODY = json.dumps({"prompt": _TEXT, "suffix": _TEXT, "stop": [_CANARY], "user": _CANARY, _CANARY: _CANARY})
_MALFORMED = (
    f"{_CANARY}\r\n\r\n",
    f"GET /{_CANARY} HTTP/{_CANARY}\r\n\r\n",
    f"{_CANARY} /{_CANARY}?{_CANARY} HTTP/1.1\r\nHost: {_CANARY}\r\n\r\n",
    f"{_HEAD}{_CANARY}\r\n\r\n",
    f"{_HEAD}X-{_CANARY}\0: {_CANARY}\r\n\r\n",
    f"{_HEAD}X: {_CANARY * 2000}\r\n\r\n",
    f"{_HEAD}Content-Length: {_CANARY}\r\n\r\n{_CANARY}",
    f"{_HEAD}Content-Length: 12\r\nContent-Length: 13\r\n\r\n{_CANARY}",
    f"{_HEAD}Transfer-Encoding: chunked\r\n\r\n{_CANARY}\r\n{_CANARY}\r\n",
    f"{_HEAD}Transfer-Encoding: {_CANARY}\r\n\r\n{_CANARY}",
    f"{_HEAD}Content-Encoding: gzip\r\nContent-Length: 12\r\n\r\n{_CANARY}",
    f"{_HEAD}Content-Type: application/json; charset={_CANARY}\r\nContent-Length: 12\r\n\r\n{_CANARY}",
    f"{_HEAD}Content-Length: 14\r\nExpect: {_CANARY}\r\n\r\n{_CANARY}",
    f"{_HEAD}Content-Length: 14\r\n\r\n[{_CANARY}]",
    f"{_HEAD}Content-Length: 99\r\n\r\n{_CANARY}",
    f"{_HEAD}Authorization: {_CANARY}\r\nX-Session-ID: {_CANARY}\r\nCookie: {_CANARY}\r\nContent-Length: 0\r\n\r\n",
)
# Fields that are wrong, each beside a text.
_WRONG: tuple[dict[str, Any], ...] = (
    *({name: {_CANARY: [_CANARY]}} for name in ("prompt", "suffix", "stop", "user", "max_tokens", "temperature", "n")),
    *({name: _CANARY} for name in ("max_tokens", "stream", "stream_options", "grammar", "logprobs", "seed")),
    {"user": _CANARY * 100},
    {"stop": [_CANARY] * 17},
)


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeLlamaServer]:
    tokenizer = load_tokenizer(find_bundled_model())
    with run_fake_llama_server(tokenizer.encoder, tokenizer.vocabulary.num_rows) as fake:
        yield fake


@pytest.fixture(scope="module", params=[pytest.param(TRITON, marks=needs_triton), EMBEDDED])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: FakeLlamaServer
) -> Iterator[RunningServer]:
    """A server in front of an engine."""
    folder = tmp_path_factory.mktemp("state")
    with run_server(find_real(), folder, f"--engine={engine.url}", runtime=request.param) as server:
        yield server


async def _ask(server: RunningServer, path: str = "/v1/completions", **fields: Any) -> str:
    """The answer to a request for a completion."""
    body, head = json.dumps({**json.loads(_BODY), **fields}), _HEAD.replace("/v1/completions", path)
    request = f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    return await _send(server.endpoint.http_port, request)


async def test_no_log_of_a_server_has_text_that_it_or_its_engine_was_sent(
    server: RunningServer, engine: FakeLlamaServer
) -> None:
    engine.reset()
    port = server.endpoint.http_port
    for path in ("/v1/completions", _GENERATE):
        await asyncio.gather(*(_send(port, data.replace("/v1/completions", path)) for data in _MALFORMED))
    for fields in _WRONG:
        assert '"error"' in await _ask(server, **fields), fields
    for answer in _ANSWERS:
        for path in ("/v1/completions", "/infill"):
            engine.change(answers=[answer] * 3)
            assert '"error"' in await _ask(server, path, max_tokens=3, n_predict=3), answer
            engine.reset()
    assert _CANARY not in await _send(port, "GET /health HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n")
    assert "completion" in server.log
    assert _find(server.log) == []


async def _send(port: int, data: str) -> str:
    """Sends text to a port, and returns the answer; what comes in a moment, if the connection is kept open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data.replace("PORT", str(port)).encode(errors="surrogatepass"))
    answer, patience_s = b"", 20 if "Connection: close" in data else 1
    with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
        while part := await asyncio.wait_for(reader.read(2**16), patience_s):
            answer += part
    writer.close()
    return answer.decode(errors="replace")


async def test_no_log_of_a_language_server_has_text_that_it_or_its_engine_was_sent(
    server: RunningServer, engine: FakeLlamaServer, start_editor: StartEditor, tmp_path: Path
) -> None:
    engine.reset()
    command = (sys.executable, "-m", "midtoken", "lsp", f"--server={server.url}")
    editor = await start_editor(Script(command, Path.cwd(), tmp_path / "no log"), build_capabilities())
    editor.uri = (tmp_path / _CANARY / "open.py").as_uri()
    editor.open(_TEXT)
    while await editor.ask(3, 13) is None:  # whether a rule excludes the file is not known yet
        await asyncio.sleep(0.05)
    for number, answer in enumerate(_ANSWERS):
        engine.change(answers=[answer] * 9)
        editor.edit(0, 0, f"# {_CANARY}{number}\n")
        await editor.ask(number + 4, 13, is_invoked=number % 2 == 1)
        engine.reset()
    document = {"uri": editor.uri, "version": 99, "text": _TEXT, "languageId": _CANARY}
    for body in (
        *(_CANARY.encode(), json.dumps([_CANARY]).encode(), b'{"method": "' + _CANARY.encode() + b'"}'),
        *(
            json.dumps({"jsonrpc": _CANARY, **identity, "method": method, "params": params}).encode()
            for identity in ({}, {"id": _CANARY})
            for method in ("textDocument/didChange", "textDocument/inlineCompletion", "workspace/x", _CANARY)
            for params in (_CANARY, [_CANARY], {_CANARY: _CANARY}, {"textDocument": document, "position": _CANARY})
        ),
        json.dumps({"jsonrpc": "2.0", "id": _CANARY, "error": {"code": 1, "message": _CANARY}}).encode(),
        json.dumps({"jsonrpc": "2.0", "id": _CANARY, "result": {_CANARY: _CANARY}}).encode(),
    ):
        editor.send_body(body)
    assert await editor.leave() == 0
    assert editor.process.stderr is not None
    written = (await editor.process.stderr.read()).decode()
    assert "cannot read a message" in written
    assert (_find(written), _find("\n".join(editor.logged)), _find(server.log)) == ([], [], [])


def _find(log: str) -> list[str]:
    return [line for line in log.splitlines() if _CANARY.lower() in line.lower()]
