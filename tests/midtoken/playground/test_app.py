import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSServerHandshakeError

from lsp_server.server import MidtokenServer
from midtoken.playground.app import Gate, start_app
from tests.support.lsp_fakes import FedBackend
from tests.support.playground_fakes import EXACT


def test_each_playground_has_a_token_of_its_own() -> None:
    tokens = {Gate(8799).token for _ in range(10)}
    assert (len(tokens), min(map(len, tokens)) >= 32) == (10, True)


_PAGE = "<!doctype html><title>playground</title>"


class _Browser:
    """A browser that shows the page, and the server behind the playground."""

    def __init__(self, session: ClientSession, gate: Gate) -> None:
        self.session = session
        self.gate = gate
        self.server = FedBackend()
        self.language_servers: list[MidtokenServer] = []

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.gate.port}"

    async def open(self, name: str) -> ClientWebSocketResponse:
        return await self.session.ws_connect(f"{self.gate.url}{name}", headers={"Origin": self.origin})


@asynccontextmanager
async def _run(tmp_path: Path) -> AsyncIterator[_Browser]:
    folder = tmp_path / "page"
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text(_PAGE)
    (folder / "playground.js").write_text("'use strict'")
    (tmp_path / "secret.txt").write_text("secret")
    listener = socket.create_server(("127.0.0.1", 0))
    gate = Gate(listener.getsockname()[1])
    async with ClientSession() as session:
        browser = _Browser(session, gate)

        async def connect(*_: object) -> FedBackend:
            return browser.server

        def build() -> MidtokenServer:
            browser.language_servers.append(MidtokenServer(connect))
            return browser.language_servers[-1]

        runner = await start_app(gate, folder, browser.server, build, listener)
        try:
            yield browser
        finally:
            await runner.cleanup()


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[_Browser]:
    async with _run(tmp_path) as browser:
        yield browser


async def test_the_page_is_served_and_may_load_only_its_files_and_stand_in_no_frame(browser: _Browser) -> None:
    async with browser.session.get(browser.gate.url) as response:
        assert (response.status, await response.text()) == (200, _PAGE)
    async with browser.session.get(f"{browser.gate.url}playground.js") as script:
        assert script.content_type.endswith("/javascript")  # Python 3.12 says text/
    assert {"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}.items() <= {
        *response.headers.items()
    }
    policy = response.headers["Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    shown = [directives[name] for name in ("default-src", "script-src", "connect-src", "frame-ancestors")]
    assert shown == ["'none'", "'self'", f"ws://127.0.0.1:{browser.gate.port}", "'none'"]
    assert "http" not in policy


@pytest.mark.parametrize("path", ["", "wrong/", "wrong/playground.js", "wrong/lsp", "wrong/{token}/", "{token}x/"])
async def test_without_the_token_nothing_is_served(browser: _Browser, path: str) -> None:
    async with browser.session.get(f"{browser.origin}/{path.format(token=browser.gate.token)}") as response:
        assert response.status == 404


@pytest.mark.parametrize(("host", "status"), [("localhost", 200), ("evil.example", 403)])
async def test_the_page_is_served_under_the_names_of_this_machine_only(
    browser: _Browser, host: str, status: int
) -> None:
    headers = {"Host": f"{host}:{browser.gate.port}"}
    async with browser.session.get(browser.gate.url, headers=headers) as response:
        assert response.status == status


@pytest.mark.parametrize("name", ["lsp", "healing"])
async def test_a_websocket_of_another_site_is_refused(browser: _Browser, name: str) -> None:
    with pytest.raises(WSServerHandshakeError) as refused:
        await browser.session.ws_connect(f"{browser.gate.url}{name}", headers={"Origin": "http://evil.example"})
    assert refused.value.status == 403


@pytest.mark.parametrize("path", ["../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt"])
async def test_only_files_of_the_page_are_served(browser: _Browser, path: str) -> None:
    reader = browser.session.get(f"{browser.gate.url}{path}")
    async with reader as response:
        assert response.status in (403, 404)
        assert "secret" not in (await response.text()).replace(browser.gate.token, "")


async def test_a_question_is_answered_over_the_websocket_and_its_answer_ends_with_the_page(browser: _Browser) -> None:
    page = await browser.open("healing")
    await page.send_str(json.dumps({"number": 1, "prefix": "return Nod", "suffix": ""}))
    while not browser.server.streams:
        await _yield_to_the_server(browser)
    browser.server.streams[0].send(EXACT)
    assert json.loads(await page.receive_str())["kind"] == "healing"
    while len(browser.server.streams) == 1:
        await _yield_to_the_server(browser)
    await page.close()
    while not browser.server.streams[1].is_cancelled:
        await _yield_to_the_server(browser)


async def _yield_to_the_server(browser: _Browser) -> None:
    async with browser.session.get(browser.gate.url) as response:
        await response.read()
