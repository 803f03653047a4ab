import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from inference.errors import LaunchError, OverloadedError, ServerUnreachableError
from inference.protocol.completion import CompletionChunk, CompletionStats, Healing, Priority
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from midtoken.playground.asker import Asker, Link
from midtoken.playground.pictures import Failure, HealingPicture, Message, NextBytePicture, Question, StrategyPicture
from tests.support.playground_fakes import EXACT, NEXT_BYTE, FedServer


class _Servers:
    """Connects to a new server each time, once `is_up` is set."""

    def __init__(self) -> None:
        self.servers: list[FedServer] = []
        self.num_attempts = 0
        self.is_up = asyncio.Event()
        self.error: Exception | None = None

    async def connect(self) -> FedServer:
        self.num_attempts += 1
        await self.is_up.wait()
        if self.error is not None:
            raise self.error
        self.servers.append(FedServer())
        return self.servers[-1]


@pytest.fixture
def servers() -> _Servers:
    return _Servers()


@pytest.fixture
async def link(servers: _Servers) -> AsyncIterator[Link]:
    link = Link(servers.connect)
    yield link
    await link.close()


async def test_all_that_ask_share_one_connection(servers: _Servers, link: Link) -> None:
    asked = [asyncio.create_task(link.get()) for _ in range(3)]
    servers.is_up.set()
    assert set(await asyncio.gather(*asked)) == {servers.servers[0]}
    assert await link.get() is servers.servers[0]


async def test_a_question_that_is_superseded_does_not_end_the_attempt_to_connect(servers: _Servers, link: Link) -> None:
    asked = asyncio.create_task(link.get())
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    servers.is_up.set()
    assert await link.get() is servers.servers[0]
    assert servers.num_attempts == 1


async def test_a_failure_is_told_to_all_without_a_new_attempt() -> None:
    servers = _Servers()
    servers.is_up.set()
    servers.error = LaunchError("no tritonserver")
    link = Link(servers.connect, retry_s=1000)
    for _ in range(3):
        with pytest.raises(LaunchError, match="no tritonserver"):
            await link.get()
    assert servers.num_attempts == 1


async def test_after_a_failure_it_connects_again() -> None:
    servers = _Servers()
    servers.is_up.set()
    servers.error = LaunchError("not yet")
    link = Link(servers.connect, retry_s=0)
    with pytest.raises(LaunchError):
        await link.get()
    servers.error = None
    assert await link.get() is servers.servers[0]


async def test_a_lost_connection_is_closed_and_replaced(servers: _Servers, link: Link) -> None:
    servers.is_up.set()
    first = await link.get()
    await link.drop(first)
    second = await link.get()
    assert servers.servers == [first, second]
    await link.drop(first)  # another question notices the same loss
    assert await link.get() is second
    assert [server.is_closed for server in servers.servers] == [True, False]


async def test_closing_ends_an_attempt_to_connect(link: Link) -> None:
    asked = asyncio.create_task(link.get())
    await asyncio.sleep(0)
    await link.close()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_closing_closes_the_connection(servers: _Servers, link: Link) -> None:
    servers.is_up.set()
    await link.get()
    await link.close()
    assert servers.servers[0].is_closed


_QUESTION = Question(1, "def make():\n    return Nod", "\n")
_SECRET = "AKIA" + "Q3EGRXC3K7UMPDFN"  # the form of an access key; it opens nothing
_OTHER = CompletionChunk("es", stats=CompletionStats(num_forwards=3))


class _Page:
    """A page, its asker and the server behind it."""

    def __init__(self, notice_s: float = 60.0) -> None:
        self.server = FedServer()
        self.is_up = asyncio.Event()
        self.is_up.set()
        self.error: Exception | None = None
        self.messages: list[Message] = []
        self.link = Link(self._connect, retry_s=0)
        self.asker = Asker(self.link, Guard(Policy({})), self._receive, notice_s)

    async def ask(self) -> None:
        """Asks, and waits until the server is asked for the exact answer."""
        self.asker.ask(_QUESTION)
        await self.wait_for_streams(1)

    async def answer(self) -> None:
        """Answers the exact strategy, and waits until the next byte is asked for."""
        self.server.streams[0].send(EXACT)
        await wait_for(lambda: len(self.server.asked) == 1)

    async def wait_for_streams(self, count: int) -> None:
        await wait_for(lambda: len(self.server.streams) == count)

    async def wait_for_messages(self, *kinds: str) -> None:
        await wait_for(lambda: [message.kind for message in self.messages] == list(kinds))

    async def close(self) -> None:
        await self.asker.close()
        await self.link.close()

    async def _connect(self) -> FedServer:
        await self.is_up.wait()
        if self.error is not None:
            raise self.error
        return self.server

    async def _receive(self, message: Message) -> None:
        self.messages.append(message)


@pytest.fixture
async def page() -> AsyncIterator[_Page]:
    page = _Page()
    yield page
    await page.close()


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_question_is_answered_by_the_tree_all_strategies_and_the_next_byte(page: _Page) -> None:
    await page.ask()
    page.server.streams[0].send(EXACT)
    await page.wait_for_messages("healing", "strategy")
    for index in (1, 2, 3):
        await page.wait_for_streams(index + 1)
        page.server.streams[index].send(_OTHER)
    await wait_for(lambda: len(page.server.asked) == 1)
    page.server.asked[0][1].set_result(NEXT_BYTE)
    await wait_for(lambda: len(page.messages) == 6)
    assert isinstance(page.messages[0], HealingPicture)
    strategies = [message for message in page.messages if isinstance(message, StrategyPicture)]
    assert [(each.healing, each.completion) for each in strategies] == [
        ("exact", "e"),
        ("greedy", "es"),
        ("single", "es"),
        ("none", "es"),
    ]
    assert sum(isinstance(message, NextBytePicture) for message in page.messages) == 1
    assert {message.number for message in page.messages} == {1}


async def test_ghost_text_comes_before_the_picture_and_no_strategy_gains_from_another(page: _Page) -> None:
    await page.ask()
    page.server.streams[0].send(EXACT)
    await page.wait_for_streams(2)
    requests = [stream.request for stream in page.server.streams]
    assert [request.healing for request in requests] == [Healing.EXACT, Healing.GREEDY]
    assert [request.explain for request in requests] == [True, False]
    assert {request.priority for request in requests} == {Priority.PREFETCH}
    assert {(request.prefix, request.suffix) for request in requests} == {(_QUESTION.prefix, _QUESTION.suffix)}
    assert len({request.tenant for request in requests}) == 2


async def test_the_next_byte_is_asked_after_the_cursors_line_with_the_lines_before_as_context(page: _Page) -> None:
    await page.ask()
    await page.answer()
    request = page.server.asked[0][0]
    assert (request.text, request.context) == (b"    return Nod", b"def make():\n")


async def test_a_secret_is_not_sent(page: _Page) -> None:
    page.asker.ask(Question(1, f'KEY = "{_SECRET}"\nreturn Nod', ""))
    await page.wait_for_streams(1)
    await page.answer()
    assert _SECRET not in page.server.streams[0].request.prefix
    assert _SECRET.encode() not in page.server.asked[0][0].context


async def test_in_a_secret_nothing_is_asked(page: _Page) -> None:
    page.asker.ask(Question(1, f'KEY = "{_SECRET}', '"\n'))
    await page.wait_for_messages("failure")
    assert page.messages == [Failure(1, "healing", "the cursor is in a secret, which is not sent")]
    assert page.server.streams == []


async def test_a_new_question_cancels_what_is_asked_for_the_old_one(page: _Page) -> None:
    await page.ask()
    page.asker.ask(Question(2, "return Node", ""))
    await page.wait_for_streams(2)
    assert page.server.streams[0].is_cancelled
    page.server.streams[1].send(EXACT)
    await page.wait_for_messages("healing", "strategy")
    assert {message.number for message in page.messages} == {2}


async def test_a_page_that_waits_for_the_server_is_told(page: _Page) -> None:
    page.asker._notice_s = 0
    page.is_up.clear()
    page.asker.ask(_QUESTION)
    await page.wait_for_messages("waiting")
    page.is_up.set()
    await page.wait_for_streams(1)


async def test_a_server_that_cannot_be_started_is_told_with_its_reason(page: _Page) -> None:
    page.error = LaunchError("no tritonserver; install it")
    page.asker.ask(_QUESTION)
    await page.wait_for_messages("failure")
    assert page.messages == [Failure(1, "connection", "no tritonserver; install it")]


async def test_a_busy_server_is_told_with_its_own_words_and_nothing_more_is_asked(page: _Page) -> None:
    await page.ask()
    page.server.streams[0].fail(OverloadedError("64 requests are waiting; try again later"))
    await page.wait_for_messages("failure")
    assert page.messages == [Failure(1, "healing", "64 requests are waiting; try again later")]
    assert len(page.server.streams) == 1
    assert page.server.asked == []


async def test_the_strategies_are_shown_although_the_next_byte_fails(page: _Page) -> None:
    await page.ask()
    await page.answer()
    page.server.asked[0][1].set_exception(OverloadedError("busy"))
    for index in (1, 2, 3):
        await page.wait_for_streams(index + 1)
        page.server.streams[index].send(_OTHER)
    await wait_for(lambda: len(page.messages) == 6)
    assert Failure(1, "next_byte", "busy") in page.messages


async def test_after_a_lost_connection_the_next_question_connects_again(page: _Page) -> None:
    await page.ask()
    lost = page.server
    page.server = FedServer()
    lost.streams[0].fail(ServerUnreachableError("no server answers at 127.0.0.1:8001"))
    await wait_for(lambda: lost.is_closed)
    await page.ask()


async def test_a_defect_is_told_without_its_text(page: _Page) -> None:
    await page.ask()
    page.server.streams[0].fail(KeyError("source text"))
    await page.wait_for_messages("failure")
    (message,) = page.messages
    assert isinstance(message, Failure)
    assert message.text.startswith("unexpected KeyError at ")
    assert "source text" not in message.text


@pytest.mark.parametrize("num_questions", [0, 1])
async def test_closing_cancels_what_is_asked(num_questions: int, page: _Page) -> None:
    for _ in range(num_questions):
        await page.ask()
    await page.close()
    assert all(stream.is_cancelled for stream in page.server.streams)
