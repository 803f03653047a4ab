"""The open documents, their requests, and the one connection to the completion server."""

import asyncio
from typing import Any

import pytest
from lsprotocol.types import TextDocumentItem

from lsp_server.no_suggestion import NoSuggestion, Reason
from tests.support.lsp_editor import URI, wait_for
from tests.support.lsp_in_process import InProcess


@pytest.fixture
async def opened(both: InProcess) -> InProcess:
    await both.start_with("secret")
    await wait_for(lambda: len(both.models) == 1)
    return both


async def test_python_with_tabs_is_sent_with_blanks_and_completed_with_tabs(both: InProcess) -> None:
    await both.start_with("class A:\n\tdef __init__(self, x):\n\t\tself.x = x\n\n\tdef get_x(self):")
    result = await both.ask_and_finish(4, 17, "\n        return self.x")
    assert [item.insert_text for item in result.items] == ["\n\t\treturn self.x"]
    assert both.backend.streams[0].request.prefix.endswith("        self.x = x\n\n    def get_x(self):")


async def test_a_defect_fails_one_request_and_is_reported_without_text(opened: InProcess) -> None:
    no_position: Any = None
    found = await opened.server.assistant.suggest(URI, no_position)
    assert isinstance(found, NoSuggestion)
    assert (found.reason, "secret" in found.message) == (Reason.FAILED, False)
    await wait_for(lambda: opened.editor.shown != [])
    assert opened.editor.shown[0].startswith("midtoken: unexpected ")
    assert "secret" not in opened.editor.shown[0]


async def test_a_request_sees_the_text_before_edits_that_came_after_it(opened: InProcess) -> None:
    answer = opened.editor.ask(0, 6)
    await asyncio.sleep(0)  # it is sent
    opened.editor.replace_all("newer text")
    assert (await opened.find_stream()).request.prefix == "secret"
    assert await answer is None


async def test_the_document_that_was_opened_or_edited_last_is_the_last(opened: InProcess) -> None:
    other = "file:///other.py"
    opened.server.open(TextDocumentItem(other, "python", 0, ""))
    assert list(opened.server.assistant.sessions) == [URI, other]
    opened.editor.edit(0, 0, "x")
    await wait_for(lambda: list(opened.server.assistant.sessions) == [other, URI])
