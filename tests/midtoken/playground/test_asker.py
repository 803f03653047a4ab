from collections.abc import AsyncIterator

import pytest

from inference.errors import OverloadedError
from inference.protocol.completion import CompletionChunk, CompletionStats, Healing, Priority
from lsp_server.privacy.exclusion import Policy
from lsp_server.privacy.guard import Guard
from midtoken.playground.asker import Asker
from midtoken.playground.pictures import Failure, HealingPicture, Message, Question, StrategyPicture
from tests.support.lsp_editor import wait_for
from tests.support.lsp_fakes import FedBackend, FedStream
from tests.support.playground_fakes import EXACT

_QUESTION = Question(1, "def make():\n    return Nod", "\n")
_SECRET = "AKIA" + "Q3EGRXC3K7UMPDFN"  # the form of an access key; it opens nothing
_OTHER = CompletionChunk("es", stats=CompletionStats(num_forwards=3))


class _Page:
    """A page, its asker, and the server that is asked."""

    def __init__(self) -> None:
        self.server = FedBackend()
        self.messages: list[Message] = []
        self.numbers: list[int] = []  # of the questions that they are about
        self.asker = Asker(self.server, Guard(Policy({}), is_remote=True), self._receive)

    async def ask(self, question: Question = _QUESTION) -> FedStream:
        """Asks, and waits until the server is asked for the exact answer."""
        num_streams = len(self.server.streams)
        self.asker.ask(question)
        await wait_for(lambda: len(self.server.streams) > num_streams)
        return self.server.streams[-1]

    async def wait_for_messages(self, *kinds: type[Message]) -> None:
        await wait_for(lambda: [type(each) for each in self.messages] == [*kinds])

    async def _receive(self, number: int, message: Message) -> None:
        self.numbers.append(number)
        self.messages.append(message)


@pytest.fixture
async def page() -> AsyncIterator[_Page]:
    page = _Page()
    yield page
    await page.asker.close()


async def test_a_question_is_answered_by_the_tree_and_by_all_strategies_none_of_which_gains_from_another(
    page: _Page,
) -> None:
    await page.ask()
    for index, chunk in enumerate((EXACT, _OTHER, _OTHER, _OTHER)):
        await wait_for(lambda wanted=index: len(page.server.streams) > wanted)  # type: ignore[misc]
        page.server.streams[index].send(chunk)
    await page.wait_for_messages(HealingPicture, *[StrategyPicture] * 4)
    shown = {each.healing: each.completion for each in page.messages if isinstance(each, StrategyPicture)}
    assert shown == {"exact": "e", "greedy": "es", "single": "es", "none": "es"}
    requests = [stream.request for stream in page.server.streams]
    assert [(each.healing, each.explain) for each in requests] == [(each, each is Healing.EXACT) for each in Healing]
    assert {each.priority for each in requests} == {Priority.INTERACTIVE}  # the others generate nothing
    assert {(each.prefix, each.suffix) for each in requests} == {(_QUESTION.prefix, _QUESTION.suffix)}
    assert len({each.tenant for each in requests}) == 4


async def test_a_secret_is_not_sent(page: _Page) -> None:
    exact = await page.ask(Question(1, f'KEY = "{_SECRET}"\nreturn Nod', ""))
    assert _SECRET not in exact.request.prefix


async def test_in_a_secret_nothing_is_asked(page: _Page) -> None:
    page.asker.ask(Question(1, f'KEY = "{_SECRET}', '"\n'))
    await wait_for(lambda: bool(page.messages))
    assert page.messages == [Failure("the cursor is in a secret, which is not sent")]
    assert page.server.streams == []


async def test_a_new_question_cancels_what_is_asked_for_the_old_one(page: _Page) -> None:
    old, new = await page.ask(), await page.ask(Question(2, "return Node", ""))
    assert old.is_cancelled
    new.send(EXACT)
    await page.wait_for_messages(HealingPicture, StrategyPicture)
    assert page.numbers == [2, 2]


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
    await page.wait_for_messages(Failure)
    (message,) = page.messages
    assert isinstance(message, Failure)
    assert (message.text[: len(text)], "source text" in message.text) == (text, False)
    assert len(page.server.streams) == 1
