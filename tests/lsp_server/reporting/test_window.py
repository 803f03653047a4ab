"""The messages that a real LSP client receives."""

from collections.abc import AsyncIterator

import pytest

from lsp_server.reporting.window import LspWindow
from tests.support.lsp_editor import build_capabilities, wait_for
from tests.support.lsp_in_process import InProcess, run_in_process


@pytest.fixture
async def both() -> AsyncIterator[InProcess]:
    async with run_in_process() as both:
        yield both


async def test_logs_and_errors_arrive_in_their_own_messages(both: InProcess) -> None:
    await both.start()
    window = LspWindow(both.server)
    window.log("a log line")
    window.show_error("an error")
    await wait_for(lambda: both.editor.shown != [])
    assert (both.editor.logged, both.editor.shown) == (["a log line"], ["an error"])


async def test_progress_is_created_begun_and_ended_over_lsp(both: InProcess) -> None:
    await both.start(build_capabilities(shows_progress=True))
    window = LspWindow(both.server)
    window.begin_progress("starting")
    window.end_progress("ready")
    await wait_for(lambda: len(both.editor.progress) == 3)
    create, begin, end = both.editor.progress
    assert create == "create"
    assert begin == {"kind": "begin", "title": "midtoken", "message": "starting", "cancellable": False}
    assert end == {"kind": "end", "message": "ready"}
    assert both.editor.logged == ["starting", "ready"]


async def test_an_editor_without_progress_support_gets_only_the_log(both: InProcess) -> None:
    await both.start(build_capabilities(shows_progress=False))
    window = LspWindow(both.server)
    window.begin_progress("starting")
    window.end_progress("ready")
    await wait_for(lambda: len(both.editor.logged) == 2)
    assert both.editor.progress == []


async def test_unbegun_progress_is_not_ended(both: InProcess) -> None:
    await both.start(build_capabilities(shows_progress=True))
    LspWindow(both.server).end_progress("ready")
    await wait_for(lambda: both.editor.logged == ["ready"])
    assert both.editor.progress == []
