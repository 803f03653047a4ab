"""What the user is told, and how often."""

from inference.errors import LaunchError, ServerError
from lsp_server.status import Status
from tests.support.lsp_fakes import RecordingWindow


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
