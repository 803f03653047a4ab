"""The model that the settings name, and what an editor sees while it is downloaded."""

import asyncio
from typing import Any

import pytest
from lsprotocol import types

from inference.protocol.completion import Description
from lsp_server.backend import OnDownload
from tests.support.lsp_editor import build_capabilities, wait_for
from tests.support.lsp_in_process import InProcess, run_in_process

_TEXT = "downloading owner/name, {} of 9 MB"


async def test_the_settings_name_the_model_and_another_one_is_connected_anew() -> None:
    async with run_in_process(languages=("python",)) as both:
        both.backend.description = Description()
        both.editor.language_id = "rust"  # what the bundled model knows does not hold for another
        both.editor.settings = {"model": "owner/name"}
        await both.start_with("a")
        assert (await both.ask_and_finish(0, 1, "b")).items
        both.editor.settings = {"model": "owner/other"}
        both.editor.push_settings(None)
        await wait_for(lambda: both.models == ["owner/name", "owner/other"])
        assert both.backend.is_closed


async def _download(on_download: OnDownload) -> None:
    for percentage in (0, 44, 100):
        on_download(_TEXT.format(9 * percentage // 100), percentage)
        await asyncio.sleep(0)


async def test_an_editor_sees_how_far_the_download_has_got(both: InProcess) -> None:
    both.download = _download
    await both.start_with("a", build_capabilities(shows_progress=True), {"model": "owner/name"})
    assert (await both.ask_and_finish(0, 1, "b")).items
    await wait_for(lambda: len(both.editor.progress) == 8)
    shown = [each for each in both.editor.progress if each != "create"]  # the two overlap
    begun, *reported, ended, started, ready = shown
    assert begun == _progress("begin", 0, 0) | {"title": "midtoken", "cancellable": True}
    assert reported == [_progress("report", 0, 0), _progress("report", 3, 44)]
    assert [each["kind"] for each in (ended, started, ready)] == ["end", "begin", "end"]
    assert started["cancellable"] is False
    assert both.server.work_done_progress.tokens == {}
    told = [(state, code, message) for _, state, code, message in both.editor.reports]
    assert ("starting", "downloading", f"{_TEXT.format(3)} (44 %)") in told
    assert told[-1][:2] == ("ready", "ready")


def _progress(kind: str, num_mb: int, percentage: int) -> dict[str, Any]:
    return {"kind": kind, "message": _TEXT.format(num_mb), "percentage": percentage}


async def test_an_editor_that_refuses_a_progress_gets_none_and_its_completions(
    both: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    both.editor.refuses_progress = True
    both.download = _download
    await both.start_with("a", build_capabilities(shows_progress=True))
    assert (await both.ask_and_finish(0, 1, "b")).items
    assert both.editor.progress == ["create", "create"]
    assert [record for record in caplog.records if "exception calling callback" in record.message] == []


async def _stall(on_download: OnDownload) -> None:
    on_download(_TEXT.format(0), 0)
    await asyncio.Event().wait()


async def test_a_download_that_is_cancelled_begins_again_only_when_it_is_asked_for(both: InProcess) -> None:
    both.download = _stall
    both.server.assistant.connector._retry_s = 0
    await both.start_with("a", build_capabilities(shows_progress=True), {"model": "owner/name"})
    await wait_for(lambda: len(both.editor.progress) > 1)
    (token,) = both.editor.progress_tokens
    both.editor.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
    await wait_for(lambda: both.editor.reports[-1][1:3] == ("off", "unreachable"))
    for _ in range(3):
        assert await both.editor.ask(0, 1) is None
    assert len(both.models) == 1
    assert any("the download of the model was cancelled" in text for text in both.editor.logged)
    assert both.editor.shown == []
    both.download = None
    both.editor.settings = {"model": "owner/other"}
    both.editor.push_settings(None)
    await wait_for(lambda: both.models == ["owner/name", "owner/other"])
    assert (await both.ask_and_finish(0, 1, "b")).items


async def test_another_model_takes_the_place_of_one_that_is_being_downloaded(both: InProcess) -> None:
    ended = list[str | None]()

    async def download(_: OnDownload) -> None:
        model = both.models[-1]
        try:
            await asyncio.sleep(60 if model == "owner/name" else 0.2)
        finally:
            await asyncio.sleep(0.05)  # it takes a moment to end
            ended.append(model)

    both.download = download
    both.server.assistant.connector._retry_s = 0
    both.editor.settings = {"model": "owner/name"}
    await both.start_with("a")
    await wait_for(lambda: both.models == ["owner/name"])
    both.editor.settings = {"model": "owner/other"}
    both.editor.push_settings(None)
    await wait_for(lambda: ended == ["owner/name"])
    assert (await both.ask_and_finish(0, 1, "b")).items
    assert ended == ["owner/name", "owner/other"]
    assert both.models == ["owner/name", "owner/other"]
