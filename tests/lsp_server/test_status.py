"""What a person is told, and how often."""

from inference.errors import ServerError
from lsp_server.status import Status
from tests.support.lsp_fakes import RecordingWindow


def test_an_error_is_shown_once_until_a_completion_works() -> None:
    window = RecordingWindow()
    status = Status(window)
    for _ in range(3):
        status.failed(ServerError("the server\nbroke off"))
    assert window.errors == ["midtoken: the server broke off"]
    status.working()
    status.failed(ServerError("the server\nbroke off"))
    assert len(window.errors) == 2
