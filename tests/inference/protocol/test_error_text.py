import pytest

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError
from inference.protocol.error_text import error_from_text, error_to_text


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidRequestError("no"), InvalidRequestError),
        (OverloadedError("no"), OverloadedError),
        (MidtokenError("no"), ServerError),
    ],
)
def test_an_error_keeps_its_kind_and_text(error: MidtokenError, kind: type[MidtokenError]) -> None:
    received = error_from_text(error_to_text(error))
    assert (type(received), str(received)) == (kind, "no")


def test_a_text_of_tritons_own_is_a_server_error() -> None:
    received = error_from_text("failed to open the stream")
    assert (type(received), str(received)) == (ServerError, "failed to open the stream")
