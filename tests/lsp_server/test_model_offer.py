"""A person who opens a file that the bundled model does not know is asked once whether to download another model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from lsprotocol import types

from inference.errors import LaunchError
from inference.protocol.completion import Description
from lsp_server.backend import OnDownload
from lsp_server.model_offer import OfferedModel
from tests.support.lsp_editor import build_capabilities, wait_for
from tests.support.lsp_fakes import FedBackend
from tests.support.lsp_in_process import InProcess, run_in_process

_QUESTION = "Download it?"


@dataclass
class _Offer:
    """An editor whose user answers, and what became of the answer."""

    both: InProcess = field(init=False)
    answer: asyncio.Future[str | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    questions: list[types.ShowMessageRequestParams] = field(default_factory=list)
    failure: Exception | None = None
    is_open: bool = True
    default: str | None = None
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    done: list[str] = field(default_factory=list)

    def choose(self) -> None:
        """Makes a model the default that knows all languages."""
        self.default, self.both.backend = "owner/name", FedBackend()

    async def download(self, on_download: OnDownload) -> None:
        on_download("downloading a model", 40)
        await self.may_end.wait()
        if self.failure is not None:
            raise self.failure
        self.choose()
        self.done.append("downloaded")


@asynccontextmanager
async def _run(languages: tuple[str, ...] = ("python",), can_ask: bool = True) -> AsyncIterator[_Offer]:
    offer = _Offer()
    offered = OfferedModel(
        _QUESTION,
        "midtoken models use it",
        lambda: offer.default,
        lambda: offer.is_open,
        offer.download,
        lambda: offer.done.append("declined"),
    )
    async with run_in_process(languages, offered=offered) as both:
        offer.both = both

        async def ask(params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
            offer.questions.append(params)
            title = await offer.answer
            return None if title is None else types.MessageActionItem(title)

        if can_ask:
            both.editor.client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)(ask)
        both.editor.language_id = "go"
        yield offer


async def test_with_one_yes_the_next_key_is_completed_by_the_model_that_was_downloaded_meanwhile() -> None:
    async with _run() as offer:
        both = offer.both
        await both.start_with("package main", build_capabilities(shows_progress=True))
        await wait_for(lambda: offer.questions != [])
        [asked] = offer.questions
        assert asked.message == f"midtoken: {_QUESTION}"
        assert [each.title for each in asked.actions or ()] == ["Download", "No"]
        offer.answer.set_result("Download")
        await wait_for(lambda: any("downloading a model" in str(each) for each in both.editor.progress))
        answer = await both.editor.ask(0, 12)
        assert answer is not None
        assert not answer.items  # not in this language yet
        offer.may_end.set()
        await wait_for(lambda: offer.done == ["downloaded"])
        await wait_for(lambda: both.editor.reports[-1][2] == "ready")
        assert (await both.ask_and_finish(0, 12, "\n")).items is not None
        assert both.models == [None]
        assert both.editor.shown == []  # the question says it


@pytest.mark.parametrize(("answer", "done"), [("No", ["declined"]), (None, [])])
async def test_another_answer_downloads_nothing_and_nobody_is_asked_again(answer: str | None, done: list[str]) -> None:
    async with _run() as offer:
        await offer.both.start_with("package main")
        await wait_for(lambda: offer.questions != [])
        offer.answer.set_result(answer)
        offer.both.editor.close()
        offer.both.editor.open("package other")
        await offer.both.editor.ask(0, 1)
        await wait_for(lambda: offer.done == done)
        assert len(offer.questions) == 1


async def test_a_download_that_fails_is_told_and_the_model_that_is_here_goes_on() -> None:
    async with _run() as offer:
        both = offer.both
        offer.failure = LaunchError("no network")
        await both.start_with("package main")
        offer.answer.set_result("Download")
        offer.may_end.set()
        text = "midtoken: no network. To try again: midtoken models use it"
        await wait_for(lambda: both.editor.shown[-1:] == [text])
        both.editor.close()
        both.editor.language_id = "python"
        both.editor.open("a")
        assert (await both.ask_and_finish(0, 1, "b")).items


async def test_an_editor_that_cannot_ask_shows_the_command() -> None:
    async with _run(can_ask=False) as offer:
        await offer.both.start_with("package main")
        await wait_for(
            lambda: f"midtoken: {_QUESTION} In a terminal: midtoken models use it" in offer.both.editor.shown
        )


async def test_nobody_is_asked_who_has_chosen_a_model_or_opens_what_the_model_knows() -> None:
    async with _run() as offer:
        offer.both.editor.language_id = "python"
        await offer.both.start_with("a")
        assert (await offer.both.ask_and_finish(0, 1, "b")).items
        offer.both.editor.close()
        offer.both.editor.settings = {"model": "owner/name"}
        offer.both.editor.push_settings(None)
        await wait_for(lambda: offer.both.backend.is_closed)
        offer.both.editor.language_id = "go"
        offer.both.editor.open("a")
        await wait_for(lambda: offer.both.models[-1] == "owner/name")
        assert offer.questions == []


async def test_who_has_answered_elsewhere_is_not_asked_and_an_old_no_changes_nothing() -> None:
    async with _run() as offer:
        await offer.both.start_with("package main")
        await wait_for(lambda: offer.questions != [])
        offer.is_open = False
        offer.answer.set_result("No")
    assert offer.done == []
    async with _run() as offer:
        offer.is_open = False
        await offer.both.start_with("package main")
        await wait_for(lambda: any("the model knows only python" in text for text in offer.both.editor.shown))
        assert offer.questions == []


async def test_a_download_beside_a_start_has_a_progress_of_its_own_and_can_be_cancelled() -> None:
    async with _run() as offer:
        both = offer.both
        await both.start_with("package main", build_capabilities(shows_progress=True))
        offer.answer.set_result("Download")
        await wait_for(lambda: any("40" in str(each) for each in both.editor.progress))
        token = both.editor.progress_tokens[-1]
        both.editor.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
        end = "the download was cancelled. To try again: midtoken models use it"
        await wait_for(lambda: any(end in str(each) for each in both.editor.progress))
        assert offer.done == []


async def test_a_language_that_the_settings_do_not_list_is_no_reason_to_ask() -> None:
    async with _run() as offer:
        offer.both.editor.settings = {"languages": ["python"]}
        await offer.both.start_with("package main")
        await wait_for(lambda: any("languages" in text for text in offer.both.editor.shown))
        assert offer.questions == []


async def test_a_server_that_knows_all_languages_says_so_to_an_editor_that_has_not_answered() -> None:
    async with _run() as offer:
        offer.both.backend.description = Description()  # another editor has downloaded the model
        offer.both.editor.language_id = "python"
        await offer.both.start_with("a")
        assert (await offer.both.ask_and_finish(0, 1, "b")).items
        offer.both.editor.close()
        offer.both.editor.language_id = "go"
        offer.both.editor.open("a")
        assert (await offer.both.ask_and_finish(0, 1, "b")).items


async def test_a_model_that_becomes_the_default_elsewhere_completes_the_next_key() -> None:
    async with _run() as offer:
        both = offer.both
        both.editor.language_id = "python"
        await both.start_with("a")
        assert (await both.ask_and_finish(0, 1, "b")).items
        both.editor.close()
        both.editor.language_id = "go"
        both.editor.open("a")
        await wait_for(lambda: offer.questions != [])
        offer.choose()
        assert (await both.ask_and_finish(0, 1, "b")).items
        assert both.models == [None, None]
        offer.default = "owner/other"
        both.editor.open("a")
        await wait_for(lambda: both.models == [None, None, None])


async def test_while_the_question_is_open_another_file_asks_and_tells_nothing_more() -> None:
    async with _run() as offer:
        await offer.both.start_with("package main")
        await wait_for(lambda: offer.questions != [])
        offer.both.editor.close()
        offer.both.editor.open("package other")
        await wait_for(lambda: len([each for each in offer.both.editor.reports if each[2] == "other_language"]) == 2)
        assert (len(offer.questions), offer.both.editor.shown) == (1, [])
