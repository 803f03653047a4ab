"""The server's state: documents, sessions, settings and the one backend."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lsprotocol.types import (
    DidChangeTextDocumentParams,
    Position,
    TextDocumentContentChangeWholeDocument,
    VersionedTextDocumentIdentifier,
)

from inference.errors import ServerUnreachableError
from lsp_server.no_suggestion import NoSuggestion, Reason
from tests.support.lsp_editor import URI, wait_for
from tests.support.lsp_in_process import InProcess, run_in_process


@pytest.fixture
async def both() -> AsyncIterator[InProcess]:
    async with run_in_process() as both:
        await both.start()
        both.editor.open("secret")
        await wait_for(lambda: both.num_connects == 1)
        yield both


async def test_a_defect_fails_one_request_and_is_reported_without_text(both: InProcess) -> None:
    no_position: Any = None
    assert await both.server.suggest(URI, no_position) == NoSuggestion(Reason.FAILED)
    await wait_for(lambda: both.editor.shown != [])
    assert both.editor.shown[0].startswith("midtoken: unexpected ")
    assert "secret" not in both.editor.shown[0]


async def test_closing_an_unopened_document_is_no_error(both: InProcess) -> None:
    both.server.close("file:///never/opened.py")
    await both.editor.client.shutdown_async(None)
    assert both.editor.shown == []


async def test_a_request_sees_the_text_before_edits_that_came_after_it(both: InProcess) -> None:
    request = asyncio.ensure_future(both.server.suggest(URI, Position(0, 6)))
    await both.server.settle()
    newer = TextDocumentContentChangeWholeDocument("newer text")
    both.server.change(DidChangeTextDocumentParams(VersionedTextDocumentIdentifier(9, URI), [newer]))
    await wait_for(lambda: both.backend.streams != [])
    assert both.backend.streams[0].request.prefix == "secret"
    request.cancel()


async def test_reconnecting_waits_for_the_retry_interval(both: InProcess) -> None:
    answer = both.editor.ask(0, 6)
    await wait_for(lambda: both.backend.streams != [])
    both.backend.streams[0].fail(ServerUnreachableError("no server answers"))
    assert await answer is None
    assert await both.editor.ask(0, 6) is None
    assert both.backend.is_closed
    assert (both.num_connects, both.editor.shown) == (1, ["midtoken: no server answers"])


async def test_close_all_can_be_called_twice(both: InProcess) -> None:
    await both.server.close_all()
    await both.server.close_all()
    assert both.backend.is_closed
