"""Who reaches the page of the playground, what it is answered about healing, and what of it is asked."""

import dataclasses
import json
import math
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSServerHandshakeError

from inference.errors import OverloadedError
from inference.likely_text import LikelyText
from inference.protocol.completion import (
    CompletionChunk,
    CompletionStats,
    ExplainedNode,
    Explanation,
    FinishReason,
    Healing,
    Priority,
)
from lsp_server.exclusion import Policy
from lsp_server.guard import Guard
from lsp_server.server import MidtokenServer
from midtoken.answer import mark_blanks
from midtoken.api import Completion
from midtoken.playground import PageAnswers, draw_healing, draw_strategy, make_path, start_app
from tests.support.lsp_editor import wait_for
from tests.support.lsp_fakes import FedBackend, FedStream

# `return Nod` of the README, with rounder numbers.
_EXPLANATION = Explanation(
    kept_tail=("():\n", "   ", " return"),
    healed_bytes=" Nod",
    nodes=(
        ExplainedNode(None, "", 0, math.log(0.6), " Node", math.log(0.6)),
        ExplainedNode(0, " N", 2, math.log(0.3), "odes", math.log(0.3)),
        ExplainedNode(1, "od", 4, math.log(0.1), "al", math.log(0.1)),
    ),
    chosen_tokens=(" Node",),
    unhealed_tokens=(" N", "od"),
)
_EXACT = CompletionChunk(
    "e",
    healed_bytes=4,
    finish_reason=FinishReason.EXTENT,
    stats=CompletionStats(queue_ms=1.0, total_ms=12.0, num_forwards=2, num_context_tokens=24, num_cached_tokens=21),
    explanation=_EXPLANATION,
)


def test_each_playground_has_a_token_of_its_own() -> None:
    paths = {make_path() for _ in range(10)}
    assert (len(paths), min(map(len, paths)) >= 32) == (10, True)


_PAGE = "<!doctype html><title>playground</title>"


class _Browser:
    """A browser that shows the page, and the server behind the playground."""

    def __init__(self, session: ClientSession, port: int) -> None:
        self.session = session
        self.port, self.path = port, make_path()
        self.server = FedBackend()
        self.language_servers: list[MidtokenServer] = []

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}{self.path}"

    async def open(self, name: str) -> ClientWebSocketResponse:
        return await self.session.ws_connect(f"{self.url}{name}", headers={"Origin": self.origin})


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[_Browser]:
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text(_PAGE)
    (folder / "playground.js").write_text("'use strict'")
    (tmp_path / "secret.txt").write_text("secret")
    listener = socket.create_server(("127.0.0.1", 0))
    async with ClientSession() as session:
        browser = _Browser(session, listener.getsockname()[1])

        async def connect(*_: object) -> FedBackend:
            return browser.server

        def build() -> MidtokenServer:
            browser.language_servers.append(MidtokenServer(connect))
            return browser.language_servers[-1]

        runner = await start_app(browser.path, folder, browser.server, build, listener)
        try:
            yield browser
        finally:
            await runner.cleanup()


async def test_the_page_is_served_and_may_load_only_its_files_and_stand_in_no_frame(browser: _Browser) -> None:
    async with browser.session.get(browser.url) as response:
        assert (response.status, await response.text()) == (200, _PAGE)
    async with browser.session.get(f"{browser.url}playground.js") as script:
        assert script.content_type.endswith("/javascript")  # Python 3.12 says text/
    assert {"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}.items() <= {
        *response.headers.items()
    }
    policy = response.headers["Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    shown = [directives[name] for name in ("default-src", "script-src", "connect-src", "frame-ancestors")]
    assert shown == ["'none'", "'self'", f"ws://127.0.0.1:{browser.port}", "'none'"]
    assert "http" not in policy


@pytest.mark.parametrize(
    ("path", "host", "is_served"),
    [
        *(("{token}/", "localhost", True), ("{token}/", "evil.example", False)),
        *((path, "localhost", False) for path in ("", "wrong/", "wrong/lsp", "wrong/{token}/", "{token}x/")),
        *(
            (f"{{token}}/{path}", "localhost", False)
            for path in ("../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt")
        ),
    ],
)
async def test_only_the_page_is_served_and_only_with_the_token_and_under_the_names_of_this_machine(
    browser: _Browser, path: str, host: str, is_served: bool
) -> None:
    url = f"{browser.origin}/{path.format(token=browser.path.strip('/'))}"
    async with browser.session.get(url, headers={"Host": f"{host}:{browser.port}"}) as response:
        assert (response.status == 200) == is_served
        assert response.status in (200, 403, 404)


@pytest.mark.parametrize("name", ["lsp", "healing"])
async def test_a_websocket_of_another_site_is_refused(browser: _Browser, name: str) -> None:
    with pytest.raises(WSServerHandshakeError) as refused:
        await browser.session.ws_connect(f"{browser.url}{name}", headers={"Origin": "http://evil.example"})
    assert refused.value.status == 403


async def test_a_question_is_answered_over_the_websocket_and_its_answer_ends_with_the_page(browser: _Browser) -> None:
    page = await browser.open("healing")
    await page.send_str(json.dumps({"number": 1, "prefix": "return Nod", "suffix": ""}))
    while not browser.server.streams:
        await _yield_to_the_server(browser)
    browser.server.streams[0].send(_EXACT)
    assert json.loads(await page.receive_str())["kind"] == "healing"
    while len(browser.server.streams) == 1:
        await _yield_to_the_server(browser)
    await page.close()
    while not browser.server.streams[1].is_cancelled:
        await _yield_to_the_server(browser)


async def _yield_to_the_server(browser: _Browser) -> None:
    async with browser.session.get(browser.url) as response:
        await response.read()


_PREFIX, _SUFFIX = "def make():\n    return Nod", "\n"
_SECRET = "AKIA" + "Q3EGRXC3K7UMPDFN"  # the form of an access key; it opens nothing
_OTHER = CompletionChunk("es", stats=CompletionStats(num_forwards=3))


class _Page:
    """A page, its answers, and the server that is asked."""

    def __init__(self) -> None:
        self.server = FedBackend()
        self.messages: list[Any] = []
        self.answers = PageAnswers(self.server, Guard(Policy({}), is_remote=True), self._receive)

    async def ask(self, number: int = 1, prefix: str = _PREFIX, suffix: str = _SUFFIX) -> FedStream:
        """Asks, and waits until the server is asked for the exact answer."""
        num_streams = len(self.server.streams)
        self.answers.ask(number, prefix, suffix)
        await wait_for(lambda: len(self.server.streams) > num_streams)
        return self.server.streams[-1]

    async def wait_for_messages(self, *kinds: str) -> None:
        await wait_for(lambda: [each["kind"] for each in self.messages] == [*kinds])

    async def _receive(self, message: object) -> None:
        self.messages.append(message)


@pytest.fixture
async def page() -> AsyncIterator[_Page]:
    page = _Page()
    yield page
    await page.answers.close()


async def test_a_question_is_answered_by_the_tree_and_by_all_strategies_none_of_which_gains_from_another(
    page: _Page,
) -> None:
    await page.ask()
    for index, chunk in enumerate((_EXACT, _OTHER, _OTHER, _OTHER)):
        await wait_for(lambda wanted=index: len(page.server.streams) > wanted)  # type: ignore[misc]
        page.server.streams[index].send(chunk)
    await page.wait_for_messages("healing", *["strategy"] * 4)
    shown = {each["healing"]: each["completion"] for each in page.messages[1:]}
    assert shown == {"exact": "e", "greedy": "es", "single": "es", "none": "es"}
    requests = [stream.request for stream in page.server.streams]
    assert [(each.healing, each.explain) for each in requests] == [(each, each is Healing.EXACT) for each in Healing]
    assert {each.priority for each in requests} == {Priority.INTERACTIVE}  # the others generate nothing
    assert {(each.prefix, each.suffix) for each in requests} == {(_PREFIX, _SUFFIX)}
    assert len({each.tenant for each in requests}) == 4


async def test_a_secret_is_not_sent(page: _Page) -> None:
    exact = await page.ask(1, f'KEY = "{_SECRET}"\nreturn Nod', "")
    assert _SECRET not in exact.request.prefix


async def test_in_a_secret_nothing_is_asked(page: _Page) -> None:
    page.answers.ask(1, f'KEY = "{_SECRET}', '"\n')
    await wait_for(lambda: bool(page.messages))
    assert page.messages == [{"number": 1, "kind": "failure", "text": "the cursor is in a secret, which is not sent"}]
    assert page.server.streams == []


async def test_a_new_question_cancels_what_is_asked_for_the_old_one(page: _Page) -> None:
    old, new = await page.ask(), await page.ask(2, "return Node", "")
    assert old.is_cancelled
    new.send(_EXACT)
    await page.wait_for_messages("healing", "strategy")
    assert [each["number"] for each in page.messages] == [2, 2]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OverloadedError("64 requests are waiting; try again later"), "64 requests are waiting; try again later"),
        (KeyError("source text"), "unexpected KeyError at "),
    ],
    ids=["overloaded", "defect"],
)
async def test_an_error_is_told_in_its_own_words_or_without_its_text_and_nothing_more_is_asked(
    error: Exception, text: str, page: _Page
) -> None:
    (await page.ask()).fail(error)
    await page.wait_for_messages("failure")
    (message,) = page.messages
    assert (message["text"][: len(text)], "source text" in message["text"]) == (text, False)
    assert len(page.server.streams) == 1


def test_the_text_is_cut_at_the_heal_point_and_each_crossing_is_a_path_with_its_share_and_best_token() -> None:
    picture = draw_healing(_PREFIX, Completion.from_chunks([_EXACT]))
    assert picture["kept_tokens"] == ["():⏎", "···", "·return"]
    assert picture["healed_tokens"] == ["·N", "od"]
    assert picture["num_healed_bytes"] == 4
    assert picture["cells"] == [{"shown": shown, "width": 1} for shown in "·Nod"]
    assert picture["typed"] == "return·Nod"
    paths = picture["paths"]
    assert [path["token_cells"] for path in paths] == [[], [2], [2, 2]]
    assert [path["next_token"] for path in paths] == ["e", "es", "al"]
    assert [path["share"] for path in paths] == pytest.approx([0.6, 0.3, 0.1])
    assert [path["is_chosen"] for path in paths] == [True, False, False]
    assert [path["num_shared"] for path in paths] == [0, 0, 1]  # an earlier path has `N` too


_CHAR = ExplainedNode(None, "", 0, math.log(0.9), "é!", math.log(0.9))
_HALF_CHAR = ExplainedNode(0, "\\xc3", 1, math.log(0.1), "\\xa9\\xc3", math.log(0.1))


@pytest.mark.parametrize(
    ("prefix", "num_healed_bytes", "nodes", "cells", "next_tokens"),
    [
        ("ab", 2, [ExplainedNode(None, "", 0, None, None, None)], [("a", 1), ("b", 1)], []),
        ("ab", 0, [ExplainedNode(None, "", 0, 0.0, " c", 0.0)], [], ["·c"]),  # any token follows the cursor
        ("é", 2, [_CHAR, _HALF_CHAR], [("\\xc3", 4), ("\\xa9", 4)], ["!", "\\xc3"]),
        ("日é", 5, [ExplainedNode(None, "", 0, 0.0, "日é。", 0.0)], [("日", 2), ("é", 1)], ["。"]),
        (
            "\u202ea",
            4,
            [ExplainedNode(None, "", 0, 0.0, "\u202ea\x1b", 0.0)],
            [("\\u202e", 6), ("a", 1)],
            ["␛"],
        ),
    ],
    ids=["no crossing", "nothing healed", "divided character", "whole characters", "control characters"],
)
def test_the_healed_bytes_are_shown_by_characters_where_no_token_divides_them(
    prefix: str, num_healed_bytes: int, nodes: list[ExplainedNode], cells: list[tuple[str, int]], next_tokens: list[str]
) -> None:
    explanation = dataclasses.replace(_EXPLANATION, nodes=tuple(nodes), chosen_tokens=())
    last = dataclasses.replace(_EXACT, healed_bytes=num_healed_bytes, explanation=explanation)
    picture = draw_healing(prefix, Completion(last))
    assert [(each["shown"], each["width"]) for each in picture["cells"]] == cells
    assert [path["next_token"] for path in picture["paths"]] == next_tokens


def test_a_confidence_shows_the_pieces_of_a_completion_that_are_as_likely() -> None:
    likely = LikelyText()
    log_probs = tuple(map(math.log, (0.9, 0.5, 0.3, 0.1)))
    likely.add(CompletionChunk("e = first_name", 0, (3, 5, 9, 14), log_probs))
    pieces = draw_strategy(Healing.EXACT, Completion(_EXACT, likely))["pieces"]
    assert [each["shown"] for each in pieces] == ["e·=", "·", "first_name"]
    for confidence in (0.05, 0.2, 0.4, 0.7, 0.95):
        shown = "".join(each["shown"] for each in pieces if each["probability"] >= confidence)
        assert shown == mark_blanks(likely.text[: likely.count_likely(0, confidence)])
