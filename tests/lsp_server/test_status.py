"""What the user is told, and how often."""

from collections.abc import AsyncIterator

import pytest

from inference.errors import LaunchError, OverloadedError, ServerError
from lsp_server.errors import OutOfStepError
from lsp_server.no_suggestion import NoSuggestion, Reason
from lsp_server.status import State, Status, StatusReport, Window
from tests.support.lsp_editor import build_capabilities, wait_for
from tests.support.lsp_fakes import RecordingWindow
from tests.support.lsp_in_process import InProcess, run_in_process


def test_an_error_is_shown_once_until_a_completion_succeeds() -> None:
    window = RecordingWindow()
    status = Status(window)
    for _ in range(3):
        status.failed(ServerError("the server\nbroke off"))
    assert window.errors == ["midtoken: the server broke off"]
    status.working()
    status.failed(ServerError("the server\nbroke off"))
    assert len(window.errors) == 2


def test_a_settings_problem_is_shown_when_it_is_new() -> None:
    window = RecordingWindow()
    status = Status(window)
    for problems in (["a"], ["a", "b"], ["b"], [], ["b"]):
        status.configured(problems)
    assert window.errors == ["midtoken: a", "midtoken: b", "midtoken: b"]


def test_an_error_without_a_text_is_shown_by_its_type() -> None:
    window = RecordingWindow()
    Status(window).failed(ServerError(""))
    assert window.errors == ["midtoken: ServerError"]


def test_a_failed_start_ends_the_progress_and_is_shown() -> None:
    window = RecordingWindow()
    status = Status(window)
    status.starting()
    status.not_started(LaunchError("install it"))
    assert [text.split()[0] for text in window.progress] == ["begin", "end"]
    assert window.errors == ["midtoken: install it"]


def test_changes_of_state_are_reported_to_editors_that_show_it() -> None:
    window = RecordingWindow()
    status = Status(window)
    status.starting()
    status.ready(1.0)
    for _ in range(2):
        status.failed(OverloadedError("no room"))
    for _ in range(2):
        status.working()
    assert [(report.uri, report.state, report.code) for report in window.reports] == [
        (None, State.STARTING, "starting"),
        (None, State.READY, "ready"),
        (None, State.ERROR, "busy"),
        (None, State.READY, "ready"),
    ]


def test_what_concerns_one_document_is_not_the_state_of_all() -> None:
    window = RecordingWindow()
    Status(window).failed(OutOfStepError("its text is lost"))
    assert window.errors == ["midtoken: its text is lost"]
    assert window.reports == []


def test_why_a_document_has_no_suggestions_is_told_when_it_changes() -> None:
    window = RecordingWindow()
    status = Status(window)
    excluded, large = NoSuggestion(Reason.EXCLUDED, "git ignores it"), NoSuggestion(Reason.TOO_LARGE, "it is too large")
    for found in (None, excluded, excluded, large, None, None):
        status.checked("file:///folder/a%20b.py", found)
    assert [(report.state, report.code, report.message) for report in window.reports] == [
        (State.OFF, "excluded", "git ignores it"),
        (State.OFF, "too_large", "it is too large"),
        (State.READY, "ready", ""),
    ]
    assert window.logs == [
        "excluded: a b.py gets no suggestions: git ignores it",
        "too_large: a b.py gets no suggestions: it is too large",
    ]
    assert window.infos == ["midtoken: it is too large"]


def test_a_closed_document_is_judged_anew() -> None:
    window = RecordingWindow()
    status = Status(window)
    for _ in range(2):
        status.checked("file:///a.py", NoSuggestion(Reason.EXCLUDED, "git ignores it"))
        status.forget("file:///a.py")
    assert window.reports == 2 * [StatusReport("file:///a.py", State.OFF, "excluded", "git ignores it")]


@pytest.fixture
async def both() -> AsyncIterator[InProcess]:
    async with run_in_process() as both:
        yield both


async def test_progress_is_created_begun_and_ended_over_lsp(both: InProcess) -> None:
    await both.start(build_capabilities(shows_progress=True))
    window = Window(both.server)
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
    window = Window(both.server)
    window.begin_progress("starting")
    window.end_progress("ready")
    await wait_for(lambda: len(both.editor.logged) == 2)
    assert both.editor.progress == []


async def test_unbegun_progress_is_not_ended(both: InProcess) -> None:
    await both.start(build_capabilities(shows_progress=True))
    Window(both.server).end_progress("ready")
    await wait_for(lambda: both.editor.logged == ["ready"])
    assert both.editor.progress == []
