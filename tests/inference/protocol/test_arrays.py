import numpy as np
import pytest

from inference.errors import (
    InferenceServerUnreachableError,
    InvalidRequestError,
    MidtokenError,
    OverloadedError,
    ServerError,
)
from inference.protocol.arrays import error_from_text, error_to_response, to_array
from inference.protocol.completion_arrays import request_from_arrays


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["healing"], "1048576 characters"),
        (["x" * 2**20], "1048576 characters"),
        ([f"field_{number}" for number in range(40_000)], "unknown field 'field_0'; known are prefix, "),
    ],
)
def test_long_input_is_quoted_only_in_part(names: list[str], text: str) -> None:
    value = np.array([b"\x00" * 2**20], np.object_)
    with pytest.raises(InvalidRequestError, match=text) as caught:
        request_from_arrays({"prefix": value} | dict.fromkeys(names, value))

    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("half", ["\ud83d", b"\xed\xa0\xbd"], ids=repr)
def test_half_a_surrogate_pair_is_u_fffd(half: str | bytes) -> None:
    texts = to_array(["a" + half if isinstance(half, str) else b"a" + half], np.object_)
    assert request_from_arrays({"prefix": texts}).prefix == "a\ufffd"


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (InvalidRequestError("no"), InvalidRequestError, "INVALID_ARG"),
        (OverloadedError("no"), OverloadedError, "UNAVAILABLE"),
        (InferenceServerUnreachableError("no"), InferenceServerUnreachableError, "UNAVAILABLE"),
        (MidtokenError("no"), ServerError, "INTERNAL"),
        (ServerError("failed to open the stream"), ServerError, "INTERNAL"),
    ],
)
def test_an_error_keeps_its_type_and_text(error: MidtokenError, kind: type[MidtokenError], code: str) -> None:
    text, code_of_triton = error_to_response(error)
    received = error_from_text(text)
    assert (type(received), str(received), code_of_triton) == (kind, str(error), code)
