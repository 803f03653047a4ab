"""What the user is told, and how often."""

import pytest

from inference.errors import MidtokenError, OverloadedError, ServerError
from lsp_server.errors import OutOfStepError
from lsp_server.no_suggestion import NoSuggestion, Reason
from lsp_server.status import State, Status, StatusReport, Window
from tests.support.lsp_editor import build_capabilities, wait_for
from tests.support.lsp_fakes import RecordingWindow
from tests.support.lsp_in_process import InProcess


@pytest.fixture
def window() -> RecordingWindow:
    return RecordingWindow()


@pytest.fixture
def status(window: RecordingWindow) -> Status:
    return Status(window)


def test_an_error_is_shown_once_until_a_completion_succeeds(window: RecordingWindow, status: Status) -> None:
    for _ in range(3):
        status.failed(ServerError("the server\nbroke off"))
    assert window.errors == ["midtoken: the server broke off"]
    status.working()
    status.failed(ServerError("the server\nbroke off"))
    assert len(window.errors) == 2


def test_a_settings_problem_is_shown_when_it_is_new(window: RecordingWindow, status: Status) -> None:
    for problems in (["a"], ["a", "b"], ["b"], [], ["b"]):
        status.configured(problems)
    assert window.errors == ["midtoken: a", "midtoken: b", "midtoken: b"]


def test_changes_of_state_are_reported_to_editors_that_show_it(window: RecordingWindow, status: Status) -> None:
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


@pytest.mark.parametrize(
    ("error", "shown", "num_reports"),
    [
        (OutOfStepError("its text is lost"), "its text is lost", 0),  # concerns one document
        (ServerError(""), "ServerError", 1),
    ],
)
def test_what_concerns_one_document_is_not_the_state_of_all(
    window: RecordingWindow, status: Status, error: MidtokenError, shown: str, num_reports: int
) -> None:
    status.failed(error)
    assert (window.errors, len(window.reports)) == ([f"midtoken: {shown}"], num_reports)


def test_why_a_document_has_no_suggestions_is_told_when_it_changes(window: RecordingWindow, status: Status) -> None:
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


def test_a_closed_document_is_judged_anew(window: RecordingWindow, status: Status) -> None:
    for _ in range(2):
        status.checked("file:///a.py", NoSuggestion(Reason.EXCLUDED, "git ignores it"))
        status.forget("file:///a.py")
    assert window.reports == 2 * [StatusReport("file:///a.py", State.OFF, "excluded", "git ignores it")]


async def test_progress_is_created_begun_and_ended_over_lsp(both: InProcess) -> None:
    await both.start(build_capabilities(shows_progress=True))
    window = Window(both.server)
    window.end_progress("none has begun")
    window.begin_progress("starting")
    window.end_progress("ready")
    await wait_for(lambda: len(both.editor.progress) == 3)
    assert both.editor.progress == [
        "create",
        {"kind": "begin", "title": "midtoken", "message": "starting", "cancellable": False},
        {"kind": "end", "message": "ready"},
    ]
    assert both.editor.logged == ["none has begun", "starting", "ready"]


async def test_an_editor_without_progress_support_gets_only_the_log(both: InProcess) -> None:
    await both.start(build_capabilities(shows_progress=False))
    Window(both.server).begin_progress("starting")
    await wait_for(lambda: both.editor.logged == ["starting"])
    assert both.editor.progress == []
