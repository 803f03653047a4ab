"""What the user is told, and how often."""

import asyncio

from inference.errors import LaunchError, ServerError, ServerUnreachableError
from lsp_server.backend import OnDownload
from tests.support.lsp_editor import build_capabilities, wait_for
from tests.support.lsp_fakes import FedBackend
from tests.support.lsp_in_process import InProcess


async def _fail(both: InProcess, character: int, text: str) -> None:
    number = len(both.backend.streams)
    answer = both.editor.ask(0, character)
    (await both.find_stream(number)).fail(ServerError(text))
    assert await answer is None


async def test_an_error_is_shown_once_until_a_completion_succeeds_and_the_state_is_told(both: InProcess) -> None:
    await both.start_with("x")
    for text in (*["the server\nbroke off"] * 3, ""):
        await _fail(both, 1, text)
    assert both.editor.shown == ["midtoken: the server broke off", "midtoken: ServerError"]
    for character in (1, 2):
        await both.ask_and_finish(0, character, "y")
        both.editor.edit(0, character, "z")
    await _fail(both, 3, "the server\nbroke off")
    assert both.editor.shown[2:] == ["midtoken: the server broke off"]
    told = [report[1:] for report in both.editor.reports]
    ready, failed = ("ready", "ready"), ("error", "refused", "the server broke off")
    assert [each[:2] for each in told] == [ready, *[failed[:2]] * 4, ready, failed[:2]]
    assert told[1] == told[2] == failed


async def _try_to_connect(both: InProcess, num_tries: int) -> None:
    while len(both.models) < num_tries:
        assert await both.editor.ask(0, 1) is None
    await wait_for(lambda: both.editor.reports[-1][1] == "error")


async def test_the_state_is_an_error_each_time_though_the_error_is_shown_once(both: InProcess) -> None:
    async def fail(_: OnDownload) -> None:
        await asyncio.sleep(0.05)
        raise LaunchError("no room")

    both.server.assistant.connector._retry_s, both.server.assistant.connector._grace_s = 0, 0.01
    both.download = fail
    await both.start_with("x", build_capabilities(shows_progress=True))
    for num_tries in (1, 2):
        await _try_to_connect(both, num_tries)
        assert both.editor.reports[-1] == (None, "error", "unreachable", "no room")
    both.download = None
    assert await both.ask_and_finish(0, 1, "y")  # it is connected
    for character in (1, 2):  # and dies at each request
        both.editor.edit(0, character, "z")
        number = len(both.backend.streams)
        answer = both.editor.ask(0, character + 1)
        (await both.find_stream(number)).fail(ServerUnreachableError("the server died"))
        assert await answer is None
        both.backend = FedBackend()
        assert both.editor.reports[-1] == (None, "error", "unreachable", "the server died")
    assert both.editor.shown == ["midtoken: no room", "midtoken: the server died"]


async def test_the_state_is_ready_after_a_start_that_was_cancelled_for_another_model(both: InProcess) -> None:
    async def connect(_: OnDownload) -> None:
        await asyncio.Event().wait()

    both.download = connect
    both.server.assistant.connector._grace_s = 0.01
    await both.start_with("x")
    await wait_for(lambda: both.editor.reports[-1:] != [] and both.editor.reports[-1][1] == "starting")
    assert both.editor.reports[-1][3] == "connecting to the completion server"  # nobody starts one that is elsewhere
    both.editor.close()
    both.editor.settings = {"model": "other"}
    both.editor.push_settings(None)
    await wait_for(lambda: both.editor.reports[-1][:2] == (None, "ready"))
