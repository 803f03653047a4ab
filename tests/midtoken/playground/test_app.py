import json
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMessage, WSMsgType, WSServerHandshakeError

from midtoken.playground.app import Gate, start_app
from midtoken.playground.asker import Link
from tests.support.playground_fakes import EXACT, FedServer
from tests.support.servers import find_processes

_GATE = Gate(8799, "secret-token")
_HOST = "127.0.0.1:8799"


@pytest.mark.parametrize("host", [_HOST, "localhost:8799"])
def test_the_pages_own_requests_are_answered(host: str) -> None:
    assert _GATE.find_refusal("/secret-token/", {"Host": host}, needs_origin=False) is None
    own = {"Host": host, "Origin": f"http://{host}"}
    assert _GATE.find_refusal("/secret-token/lsp", own, needs_origin=True) is None


_WITHOUT_THE_TOKEN = (
    *("/", "", "/secret-token", "/secret-toke/", "/secret-token2/", "/wrong/secret-token/", "/%73ecret-token/"),
    "/sécret\udcff/",  # of any bytes
)
_OTHER_HOSTS = ("evil.example:8799", "127.0.0.1:8800", "127.0.0.1", "[::1]:8799", "")
_OTHER_ORIGINS = (
    *("http://evil.example", "https://127.0.0.1:8799", "http://127.0.0.1:8800", "http://localhost:8799", "null"),
)


@pytest.mark.parametrize(
    ("path", "headers", "refusal"),
    [
        *((path, {"Host": _HOST}, "no valid token") for path in _WITHOUT_THE_TOKEN),
        *(("/secret-token/", {"Host": host}, "answers only at") for host in _OTHER_HOSTS),
        ("/secret-token/", {}, "answers only at"),
        *(("/secret-token/lsp", {"Host": _HOST, "Origin": origin}, "not another site") for origin in _OTHER_ORIGINS),
    ],
)
def test_requests_without_the_token_and_of_others_are_refused(
    path: str, headers: Mapping[str, str], refusal: str
) -> None:
    assert refusal in str(_GATE.find_refusal(path, headers, needs_origin=False))


def test_a_websocket_without_an_origin_is_refused() -> None:
    refusal = _GATE.find_refusal("/secret-token/lsp", {"Host": _HOST}, needs_origin=True)
    assert "only for its own page" in str(refusal)


def test_each_playground_has_a_token_of_its_own() -> None:
    gates = [Gate.create(8799) for _ in range(10)]
    assert len({gate.token for gate in gates}) == 10
    assert all(len(gate.token) >= 32 for gate in gates)


_PAGE = "<!doctype html><title>playground</title>"


class _Browser:
    """A browser that shows the page, and the server behind the playground."""

    def __init__(self, session: ClientSession, gate: Gate) -> None:
        self.session = session
        self.gate = gate
        self.server = FedServer()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.gate.port}"

    async def open(self, name: str) -> ClientWebSocketResponse:
        return await self.session.ws_connect(f"{self.gate.url}{name}", headers={"Origin": self.origin})


@asynccontextmanager
async def _run(tmp_path: Path, language_server: Sequence[str] = ("cat",)) -> AsyncIterator[_Browser]:
    folder = tmp_path / "page"
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text(_PAGE)
    (folder / "playground.js").write_text("'use strict'")
    (tmp_path / "secret.txt").write_text("secret")
    listener = socket.create_server(("127.0.0.1", 0))
    gate = Gate.create(listener.getsockname()[1])
    async with ClientSession() as session:
        browser = _Browser(session, gate)

        async def connect() -> FedServer:
            return browser.server

        runner = await start_app(gate, folder, Link(connect), language_server, listener)
        try:
            yield browser
        finally:
            await runner.cleanup()


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[_Browser]:
    async with _run(tmp_path) as browser:
        yield browser


async def test_the_page_and_its_files_are_served(browser: _Browser) -> None:
    async with browser.session.get(browser.gate.url) as response:
        assert (response.status, await response.text()) == (200, _PAGE)
    async with browser.session.get(f"{browser.gate.url}playground.js") as response:
        assert response.content_type.endswith("/javascript")  # Python 3.12 says text/


async def test_the_page_may_load_nothing_from_elsewhere_and_stand_in_no_frame(browser: _Browser) -> None:
    async with browser.session.get(browser.gate.url) as response:
        policy = response.headers["Content-Security-Policy"]
        assert response.headers["Referrer-Policy"] == "no-referrer"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == "'self'"
    assert directives["connect-src"] == f"ws://127.0.0.1:{browser.gate.port}"
    assert directives["frame-ancestors"] == "'none'"
    assert "http" not in policy


@pytest.mark.parametrize("path", ["", "wrong/", "wrong/playground.js", "wrong/lsp"])
async def test_without_the_token_nothing_is_served(browser: _Browser, path: str) -> None:
    async with browser.session.get(f"{browser.origin}/{path}") as response:
        assert response.status == 403
        assert "no valid token" in await response.text()


@pytest.mark.parametrize("name", ["lsp", "healing"])
@pytest.mark.parametrize("headers", [{}, {"Origin": "http://evil.example"}])
async def test_a_websocket_of_another_site_is_refused(browser: _Browser, name: str, headers: dict[str, str]) -> None:
    with pytest.raises(WSServerHandshakeError) as refused:
        await browser.session.ws_connect(f"{browser.gate.url}{name}", headers=headers)
    assert refused.value.status == 403


@pytest.mark.parametrize("path", ["../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt"])
async def test_only_files_of_the_page_are_served(browser: _Browser, path: str) -> None:
    reader = browser.session.get(f"{browser.gate.url}{path}")
    async with reader as response:
        assert response.status in (403, 404)
        assert "secret" not in (await response.text()).replace(browser.gate.token, "")


async def test_the_editor_speaks_to_a_language_server(browser: _Browser) -> None:
    editor = await browser.open("lsp")
    texts = ["{}", '{"text": "日本 😀"}', f'{{"a": "{"x" * 300_000}"}}']
    for text in texts:
        await editor.send_str(text)
    assert [await editor.receive_str() for _ in texts] == texts
    await editor.close()


@pytest.mark.parametrize("end", ["page", "playground"])
async def test_the_language_server_ends_with_the_page_and_with_the_playground(tmp_path: Path, end: str) -> None:
    marker = tmp_path / "marker"
    async with _run(tmp_path, ("sh", "-c", "cat; exit", str(marker))) as browser:
        editor = await browser.open("lsp")
        await editor.send_str("{}")
        await editor.receive_str()
        assert len(find_processes(marker)) == 1
        if end == "page":
            await editor.close()
            while len(find_processes(marker)):
                await _yield_to_the_server(await browser.open("healing"))
    assert len(find_processes(marker)) == 0


async def test_a_page_is_told_that_its_language_server_has_ended(tmp_path: Path) -> None:
    async with _run(tmp_path, ("true",)) as browser:
        editor = await browser.open("lsp")
        message = await editor.receive()
        assert (message.type, message.extra) == (WSMsgType.CLOSE, "the language server has ended")


async def test_one_page_too_many_is_told_so(browser: _Browser) -> None:
    editors = [await browser.open("lsp") for _ in range(8)]
    for editor in editors:
        await editor.send_str("{}")
        await editor.receive_str()
    refused = await (await browser.open("lsp")).receive()
    assert (refused.type, refused.data) == (WSMsgType.CLOSE, 1013)
    assert refused.extra == "8 pages of this playground are open already"
    await editors[0].close()
    while (answer := await _echo(browser)).type is WSMsgType.CLOSE:  # until the language server has ended
        pass
    assert answer.data == "{}"


async def _echo(browser: _Browser) -> WSMessage:
    editor = await browser.open("lsp")
    await editor.send_str("{}")
    return await editor.receive()


async def test_a_question_is_answered_over_the_websocket_and_its_answer_ends_with_the_page(browser: _Browser) -> None:
    page, other = await browser.open("healing"), await browser.open("healing")
    await page.send_str(json.dumps({"number": 1, "prefix": "return Nod", "suffix": ""}))
    while not browser.server.streams:
        await _yield_to_the_server(other)
    browser.server.streams[0].send(EXACT)
    assert json.loads(await page.receive_str())["kind"] == "healing"
    while len(browser.server.streams) == 1:
        await _yield_to_the_server(other)
    await page.close()
    while not browser.server.streams[1].is_cancelled:
        await _yield_to_the_server(other)


async def _yield_to_the_server(page: ClientWebSocketResponse) -> None:
    await page.ping()
    await page.send_str("not JSON")
    assert json.loads(await page.receive_str())["kind"] == "failure"


async def test_open_pages_are_told_that_the_playground_has_ended(tmp_path: Path) -> None:
    async with _run(tmp_path) as browser:
        editor, page = await browser.open("lsp"), await browser.open("healing")
        await editor.send_str("{}")
        await editor.receive_str()
        await _yield_to_the_server(page)
        closed = [page.receive(), editor.receive()]
    for each in closed:
        message = await each
        assert (message.type, message.extra) == (WSMsgType.CLOSE, "the playground has ended")
