import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from inference.errors import LaunchError, OverloadedError, ServerUnreachableError
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.completion import CompletionChunk, CompletionStats, Healing, Priority
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from midtoken.playground.asker import Asker, Link
from midtoken.playground.pictures import (
    Failure,
    HealingPicture,
    Message,
    NextBytePicture,
    Question,
    StrategyPicture,
    Waiting,
    to_json,
)
from tests.support.lsp_fakes import FedStream
from tests.support.playground_fakes import EXACT, NEXT_BYTE, FedServer


class _Servers:
    """Connects to a new server each time, while `is_up` is set."""

    def __init__(self) -> None:
        self.servers: list[FedServer] = []
        self.num_attempts = 0
        self.is_up = asyncio.Event()
        self.is_up.set()
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


async def test_all_share_one_connection_although_a_question_is_superseded(servers: _Servers, link: Link) -> None:
    servers.is_up.clear()
    superseded, *asked = [asyncio.create_task(link.get()) for _ in range(3)]
    await asyncio.sleep(0)
    superseded.cancel()
    await asyncio.wait([superseded])
    servers.is_up.set()
    assert [*await asyncio.gather(*asked), await link.get()] == [servers.servers[0]] * 3
    assert servers.num_attempts == 2
    assert len(servers.servers) == 1


async def test_a_failure_is_told_and_the_next_one_connects_again(servers: _Servers, link: Link) -> None:
    servers.error = LaunchError("no tritonserver")
    for _ in range(2):
        with pytest.raises(LaunchError, match="no tritonserver"):
            await link.get()
    assert servers.num_attempts == 2


async def test_a_lost_connection_is_closed_and_replaced(servers: _Servers, link: Link) -> None:
    first = await link.get()
    await link.drop(first)
    second = await link.get()
    assert servers.servers == [first, second]
    await link.drop(first)  # another question notices the same loss
    assert await link.get() is second
    assert [server.is_closed for server in servers.servers] == [True, False]
    await link.close()
    assert servers.servers[1].is_closed


_QUESTION = Question(1, "def make():\n    return Nod", "\n")
_SECRET = "AKIA" + "Q3EGRXC3K7UMPDFN"  # the form of an access key; it opens nothing
_OTHER = CompletionChunk("es", stats=CompletionStats(num_forwards=3))


class _Page:
    """A page, its asker and the servers behind it."""

    def __init__(self) -> None:
        self.servers = _Servers()
        self.messages: list[Message] = []
        self.numbers: list[int] = []  # of the questions that they are about
        self.notices: list[Message] = []  # that the page waits
        self.link = Link(self.servers.connect)
        self.asker = Asker(self.link, Guard(Policy({})), self._receive)

    @property
    def streams(self) -> list[FedStream]:
        return [stream for server in self.servers.servers for stream in server.streams]

    @property
    def next_bytes(self) -> list[tuple[CharacterRequest, asyncio.Future[CharacterAnswer]]]:
        return [asked for server in self.servers.servers for asked in server.asked]

    async def ask(self, question: Question = _QUESTION) -> FedStream:
        """Asks, and waits until the server is asked for the exact answer."""
        num_streams = len(self.streams)
        self.asker.ask(question)
        await wait_for(lambda: len(self.streams) > num_streams)
        return self.streams[-1]

    async def answer(self) -> None:
        """Answers all strategies, and waits until the next byte is asked for."""
        for index, chunk in enumerate((EXACT, _OTHER, _OTHER, _OTHER)):
            await wait_for(lambda wanted=index: len(self.streams) > wanted)  # type: ignore[misc]
            self.streams[index].send(chunk)
        await wait_for(lambda: len(self.next_bytes) == 1)

    async def wait_for_messages(self, *kinds: str) -> None:
        await wait_for(lambda: [json.loads(to_json(0, each))["kind"] for each in self.messages] == list(kinds))

    async def close(self) -> None:
        await self.asker.close()
        await self.link.close()

    async def _receive(self, number: int, message: Message) -> None:
        self.numbers.append(number)
        (self.notices if isinstance(message, Waiting) else self.messages).append(message)


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
    await page.answer()
    page.next_bytes[0][1].set_result(NEXT_BYTE)
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
    assert set(page.numbers) == {1}


async def test_each_strategy_is_asked_for_text_and_none_gains_from_another(page: _Page) -> None:
    await page.ask()
    await page.answer()
    requests = [stream.request for stream in page.streams]
    assert [request.healing for request in requests] == [*Healing]
    assert [request.explain for request in requests] == [True, False, False, False]
    assert {request.priority for request in requests} == {Priority.INTERACTIVE}  # the others generate nothing
    assert {(request.prefix, request.suffix) for request in requests} == {(_QUESTION.prefix, _QUESTION.suffix)}
    assert len({request.tenant for request in requests}) == 4


async def test_the_next_byte_is_asked_after_the_cursors_line_with_the_lines_before_as_context(page: _Page) -> None:
    await page.ask()
    await page.answer()
    request = page.next_bytes[0][0]
    assert (request.text, request.context) == (b"    return Nod", b"def make():\n")


async def test_a_secret_is_not_sent(page: _Page) -> None:
    exact = await page.ask(Question(1, f'KEY = "{_SECRET}"\nreturn Nod', ""))
    await page.answer()
    assert _SECRET not in exact.request.prefix
    assert _SECRET.encode() not in page.next_bytes[0][0].context


async def test_in_a_secret_nothing_is_asked(page: _Page) -> None:
    page.asker.ask(Question(1, f'KEY = "{_SECRET}', '"\n'))
    await page.wait_for_messages("failure")
    assert page.messages == [Failure("healing", "the cursor is in a secret, which is not sent")]
    assert page.servers.num_attempts == 0


async def test_a_new_question_cancels_what_is_asked_for_the_old_one(page: _Page) -> None:
    old, new = await page.ask(), await page.ask(Question(2, "return Node", ""))
    assert old.is_cancelled
    new.send(EXACT)
    await page.wait_for_messages("healing", "strategy")
    assert set(page.numbers[-2:]) == {2}


async def test_a_page_that_waits_for_the_server_is_told(page: _Page) -> None:
    page.servers.is_up.clear()
    page.asker.ask(_QUESTION)
    await wait_for(lambda: page.notices == [Waiting()])
    page.servers.is_up.set()
    await wait_for(lambda: len(page.streams) == 1)
    await page.ask()
    assert page.notices == [Waiting()]


async def test_a_server_that_cannot_be_started_is_told_with_its_reason(page: _Page) -> None:
    page.servers.error = LaunchError("no tritonserver; install it")
    page.asker.ask(_QUESTION)
    await page.wait_for_messages("failure")
    assert page.messages == [Failure("connection", "no tritonserver; install it")]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OverloadedError("64 requests are waiting; try again later"), "64 requests are waiting; try again later"),
        (KeyError("source text"), "unexpected KeyError at "),
    ],
)
async def test_an_error_is_told_in_its_own_words_or_without_its_text_and_nothing_more_is_asked(
    error: Exception, text: str, page: _Page
) -> None:
    (await page.ask()).fail(error)
    await page.wait_for_messages("failure")
    (message,) = page.messages
    assert isinstance(message, Failure)
    assert (message.part, message.text[: len(text)]) == ("healing", text)
    assert "source text" not in message.text
    assert (len(page.streams), page.next_bytes) == (1, [])


async def test_the_strategies_are_shown_although_the_next_byte_fails(page: _Page) -> None:
    await page.ask()
    page.streams[0].send(EXACT)
    await wait_for(lambda: len(page.next_bytes) == 1)
    page.next_bytes[0][1].set_exception(OverloadedError("busy"))
    await page.answer()
    await wait_for(lambda: len(page.messages) == 6)
    assert Failure("next_byte", "busy") in page.messages


async def test_after_a_lost_connection_the_next_question_connects_again(page: _Page) -> None:
    (await page.ask()).fail(ServerUnreachableError("no server answers at 127.0.0.1:8001"))
    await wait_for(lambda: page.servers.servers[0].is_closed)
    await page.ask()
    assert page.servers.num_attempts == 2


@pytest.mark.parametrize("num_questions", [0, 1])
async def test_closing_cancels_what_is_asked(num_questions: int, page: _Page) -> None:
    for _ in range(num_questions):
        await page.ask()
    await page.close()
    assert all(stream.is_cancelled for stream in page.streams)
