import pytest

from inference.errors import InvalidRequestError, MidtokenError, OverloadedError, ServerError
from inference.protocol.error_text import error_from_text, error_to_text, find_triton_code


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (InvalidRequestError("no"), InvalidRequestError, "INVALID_ARG"),
        (OverloadedError("no"), OverloadedError, "UNAVAILABLE"),
        (MidtokenError("no"), ServerError, "INTERNAL"),
    ],
)
def test_an_error_keeps_its_type_and_text(error: MidtokenError, kind: type[MidtokenError], code: str) -> None:
    received = error_from_text(error_to_text(error))
    assert (type(received), str(received)) == (kind, "no")
    assert find_triton_code(error) == code


def test_triton_s_own_error_text_is_a_server_error() -> None:
    received = error_from_text("failed to open the stream")
    assert (type(received), str(received)) == (ServerError, "failed to open the stream")
