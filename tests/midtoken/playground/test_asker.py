import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from inference.errors import LaunchError, OverloadedError, ServerUnreachableError
from inference.protocol.characters import CharacterAnswer, CharacterRequest
from inference.protocol.completion import CompletionChunk, CompletionStats, Healing, Priority
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from midtoken.playground.asker import Asker, Link
from midtoken.playground.pictures import Failure, Message, Question, StrategyPicture, Waiting, to_json
from tests.support.lsp_editor import wait_for
from tests.support.lsp_fakes import FedStream
from tests.support.playground_fakes import EXACT, NEXT_BYTE, FedServer

_QUESTION = Question(1, "def make():\n    return Nod", "\n")
_SECRET = "AKIA" + "Q3EGRXC3K7UMPDFN"  # the form of an access key; it opens nothing
_OTHER = CompletionChunk("es", stats=CompletionStats(num_forwards=3))


class _Page:
    """A page, its asker, and the servers to which it connects while `is_up` is set: a new one each time."""

    def __init__(self) -> None:
        self.servers: list[FedServer] = []
        self.num_attempts = 0
        self.is_up = asyncio.Event()
        self.is_up.set()
        self.error: Exception | None = None
        self.messages: list[Message] = []
        self.numbers: list[int] = []  # of the questions that they are about
        self.link = Link(self._connect)
        self.asker = Asker(self.link, Guard(Policy({})), self._receive)

    @property
    def streams(self) -> list[FedStream]:
        return [stream for server in self.servers for stream in server.streams]

    @property
    def next_bytes(self) -> list[tuple[CharacterRequest, asyncio.Future[CharacterAnswer]]]:
        return [asked for server in self.servers for asked in server.asked]

    async def ask(self, question: Question = _QUESTION) -> FedStream:
        """Asks, and waits until the server is asked for the exact answer."""
        num_streams = len(self.streams)
        self.asker.ask(question)
        await wait_for(lambda: len(self.streams) > num_streams)
        return self.streams[-1]

    async def answer(self) -> CharacterRequest:
        """Answers all strategies. Returns what is asked about the next byte."""
        for index, chunk in enumerate((EXACT, _OTHER, _OTHER, _OTHER)):
            await wait_for(lambda wanted=index: len(self.streams) > wanted)  # type: ignore[misc]
            self.streams[index].send(chunk)
        await wait_for(lambda: len(self.next_bytes) == 1)
        return self.next_bytes[0][0]

    async def wait_for_messages(self, *kinds: str) -> None:
        await wait_for(lambda: [json.loads(to_json(0, each))["kind"] for each in self.messages] == ["waiting", *kinds])

    async def close(self) -> None:
        await self.asker.close()
        await self.link.close()

    async def _connect(self) -> FedServer:
        self.num_attempts += 1
        await self.is_up.wait()
        if self.error is not None:
            raise self.error
        self.servers.append(FedServer())
        return self.servers[-1]

    async def _receive(self, number: int, message: Message) -> None:
        self.numbers.append(number)
        self.messages.append(message)


@pytest.fixture
async def page() -> AsyncIterator[_Page]:
    page = _Page()
    yield page
    await page.close()


async def test_all_share_one_connection_although_a_question_is_superseded(page: _Page) -> None:
    page.is_up.clear()
    superseded, *asked = [asyncio.create_task(page.link.get()) for _ in range(3)]
    await asyncio.sleep(0)
    superseded.cancel()
    await asyncio.wait([superseded])
    page.is_up.set()
    assert [*await asyncio.gather(*asked), await page.link.get()] == [page.servers[0]] * 3
    assert (page.num_attempts, len(page.servers)) == (2, 1)


async def test_a_question_is_answered_by_the_tree_all_strategies_and_the_next_byte(page: _Page) -> None:
    await page.ask()
    await page.answer()
    page.next_bytes[0][1].set_result(NEXT_BYTE)
    await page.wait_for_messages("healing", *["strategy"] * 4, "next_byte")
    strategies = [message for message in page.messages if isinstance(message, StrategyPicture)]
    shown = {each.healing: each.completion for each in strategies}
    assert shown == {"exact": "e", "greedy": "es", "single": "es", "none": "es"}
    assert set(page.numbers) == {1}


async def test_each_strategy_is_asked_for_text_and_none_gains_from_another(page: _Page) -> None:
    await page.ask()
    next_byte = await page.answer()
    requests = [stream.request for stream in page.streams]
    assert [(request.healing, request.explain) for request in requests] == [
        (healing, healing is Healing.EXACT) for healing in Healing
    ]
    assert {request.priority for request in requests} == {Priority.INTERACTIVE}  # the others generate nothing
    assert {(request.prefix, request.suffix) for request in requests} == {(_QUESTION.prefix, _QUESTION.suffix)}
    assert len({request.tenant for request in requests}) == 4
    assert (next_byte.text, next_byte.context) == (b"    return Nod", b"def make():\n")  # the cursor's line


async def test_a_secret_is_not_sent(page: _Page) -> None:
    exact = await page.ask(Question(1, f'KEY = "{_SECRET}"\nreturn Nod', ""))
    next_byte = await page.answer()
    assert _SECRET not in exact.request.prefix + next_byte.context.decode()


async def test_in_a_secret_nothing_is_asked(page: _Page) -> None:
    page.asker.ask(Question(1, f'KEY = "{_SECRET}', '"\n'))
    await wait_for(lambda: bool(page.messages))
    assert page.messages == [Failure("healing", "the cursor is in a secret, which is not sent")]
    assert page.num_attempts == 0


async def test_a_new_question_cancels_what_is_asked_for_the_old_one(page: _Page) -> None:
    old, new = await page.ask(), await page.ask(Question(2, "return Node", ""))
    assert old.is_cancelled
    new.send(EXACT)
    await page.wait_for_messages("healing", "strategy")
    assert page.numbers == [1, 2, 2]


async def test_a_page_is_told_that_it_waits_for_the_server_and_why_it_cannot_be_started(page: _Page) -> None:
    page.is_up.clear()
    page.error = LaunchError("no tritonserver; install it")
    page.asker.ask(_QUESTION)
    await page.wait_for_messages()
    page.is_up.set()
    await page.wait_for_messages("failure")
    page.error = None
    await page.ask()
    assert page.messages == [Waiting(), Failure("connection", "no tritonserver; install it"), Waiting()]
    await page.ask()
    assert (page.num_attempts, len(page.messages)) == (2, 3)


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
    message = page.messages[1]
    assert isinstance(message, Failure)
    assert (message.part, message.text[: len(text)], "source text" in message.text) == ("healing", text, False)
    assert (len(page.streams), page.next_bytes) == (1, [])


async def test_after_a_lost_connection_the_next_question_connects_again(page: _Page) -> None:
    (await page.ask()).fail(ServerUnreachableError("no server answers at 127.0.0.1:8001"))
    await wait_for(lambda: page.servers[0].is_closed)
    await page.ask()
    assert page.num_attempts == 2


async def test_a_connection_whose_loss_two_questions_notice_is_replaced_once(page: _Page) -> None:
    first = await page.link.get()
    await page.link.drop(first)
    second = await page.link.get()
    await page.link.drop(first)
    assert (await page.link.get() is second, page.servers) == (True, [first, second])
    assert [server.is_closed for server in page.servers] == [True, False]
    await page.link.close()
    assert page.servers[1].is_closed
